from typing import Any

from serve.policy.document import Policy
from serve.policy.entry import VersionedPolicy
from serve.policy.since import unchanged_since

NEVER, LAYER = {"rule": "never"}, {"rule": "layer", "layer": 2}
SURE = {"target": {"max_disagreement": 0.01}}


def since(*policies: dict[str, Any]) -> dict[str, int]:
    """Return what is known after these policies, oldest first, were versions 5 and on."""
    entries = [
        VersionedPolicy(
            version=version, policy=Policy.model_validate(policy), source="api", baseline=""
        )
        for version, policy in enumerate(policies, 5)
    ]
    return dict(unchanged_since(reversed(entries)))


def test_a_profile_counts_from_its_last_change_and_also_from_one_that_is_taken_back() -> None:
    def policy(here: dict[str, Any], **limits: Any) -> dict[str, Any]:
        return {"default": NEVER, "profiles": {"a": here, "b": SURE}, "limits": limits}

    assert since(policy(SURE)) == {"default": 5, "a": 5, "b": 5}
    assert since(policy(SURE), policy(LAYER)) == {"default": 5, "a": 6, "b": 5}
    assert since(policy(SURE), policy(LAYER), policy(SURE)) == {"default": 5, "a": 7, "b": 5}
    assert since(policy(SURE), policy(SURE, overrides="none"))["a"] == 5
    assert since(policy(SURE), policy(SURE, max_layer=3)) == {"default": 6, "a": 6, "b": 6}


def test_what_a_profile_flags_and_how_it_cuts_are_part_of_what_it_says() -> None:
    def policy(**settings: Any) -> dict[str, Any]:
        return {"default": "a", "profiles": {"a": {"exit": SURE, **settings}}}

    assert since(policy(), policy(flag={"x": 0.5})) == {"default": 6, "a": 6}
    assert since(policy(windows={}), policy(windows={"stride": 8})) == {"default": 6, "a": 6}
    assert since(policy(windows={}), policy(windows={})) == {"default": 5, "a": 5}


def test_a_default_that_names_another_profile_says_something_else() -> None:
    profiles = {"a": SURE, "b": LAYER}
    both = [{"default": name, "profiles": profiles} for name in ("a", "b")]
    assert since(*both) == {"default": 6, "a": 5, "b": 5}


def test_nothing_is_known_of_no_entries() -> None:
    assert since() == {}
