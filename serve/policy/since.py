"""Since which version of the policy each profile says what it says now."""

from collections.abc import Iterable, Mapping
from typing import Any

from serve.policy.document import DEFAULT, Policy
from serve.policy.entry import VersionedPolicy


def unchanged_since(entries: Iterable[VersionedPolicy]) -> Mapping[str, int]:
    """Return, for the default and each profile of the newest policy, its version.

    A change that is taken back makes two versions: what was known of the first is not of the last.

    Args:
        entries: of a policy's log, newest first, without gaps as far as they are kept.
    """
    since: dict[str, int] = {}
    said: dict[str, Any] | None = None
    for entry in entries:
        here = _said(entry.policy)
        if said is None:
            said = here
        said = {name: what for name, what in said.items() if here.get(name) == what}
        if not said:
            break
        since |= dict.fromkeys(said, entry.version)
    return since


def _said(policy: Policy) -> dict[str, Any]:
    """Return all that decides about the answers of the default and of each profile."""
    limits = policy.limits.min_layer, policy.limits.max_layer
    return {
        name: (wish, policy.settings_for(None if name == DEFAULT else name), limits)
        for name, wish in policy.wishes.items()
    }
