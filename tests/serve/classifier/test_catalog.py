"""Configured policies are applied all or none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from serve.classifier.catalog import Catalog
from serve.config import ServerConfig
from serve.errors import InvalidRule
from serve.policy.document import Policy
from serve.standalone import standalone_context


def leave_at(layer: int) -> Policy:
    return Policy.model_validate({"default": {"rule": "layer", "layer": layer}})


@pytest.fixture
def catalog(bundle_copy: Callable[..., Path]) -> Catalog:
    """Return two models, started from their bundles' policies."""
    folders = [str(bundle_copy("one")), str(bundle_copy("two"))]
    return standalone_context(ServerConfig(bundles=folders, precision="fp32")).catalog


@pytest.mark.parametrize(
    ("configured", "message"),
    [
        ({"onne": 3}, "^policies.onne: no such model; served are one, two$"),
        ({"one": 3, "onne": 3}, "^policies.onne: no such model; served are one, two$"),
        ({"one": 3, "two": 9}, "^policies.two: default: layer 9 has no exit"),
        ({"one": 9, "twoo": 3}, "^policies.twoo: no such .*; policies.one: default: layer 9 has"),
    ],
)
def test_refused_policies_change_nothing(
    catalog: Catalog, configured: dict[str, int], message: str
) -> None:
    catalog.set_baselines({"one": leave_at(1)})
    catalog.find("two").policy.change(leave_at(2), based_on=None)
    before = [classifier.policy.current for classifier in catalog]
    with pytest.raises(InvalidRule, match=message):
        catalog.set_baselines({name: leave_at(layer) for name, layer in configured.items()})
    assert [classifier.policy.current for classifier in catalog] == before


def test_a_model_that_is_not_configured_any_more_follows_its_bundle_again(catalog: Catalog) -> None:
    catalog.set_baselines({"one": leave_at(1)})
    assert [c.policy.current.source for c in catalog] == ["config", "bundle"]
    catalog.set_baselines({})
    assert [c.policy.current.source for c in catalog] == ["bundle", "bundle"]
