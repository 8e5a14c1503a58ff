"""The table of a bundle, which answers before the first layer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.bundle.loader import load_bundle
from serve.classifier.variant import why_uncertified
from serve.errors import InvalidBundle
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.ladders import ladder
from tests.serve.support.tables import VOCABULARY, add_table, table_rows, tiny_table

Copy = Callable[..., Path]


def test_a_bundle_has_its_table_and_layer_0(bundle_copy: Copy) -> None:
    bundle = load_bundle(add_table(bundle_copy(), temperature=1.5))
    assert (bundle.manifest.traits.table_temperature, bundle.traits("fp32").layers[0]) == (1.5, 0)
    table, ids = bundle.read_table(), np.array([2, 12, 12, 3])
    assert table
    assert table.vocabulary == VOCABULARY
    assert table.logits(ids).tolist() == tiny_table().logits(ids).tolist()


@pytest.mark.parametrize(
    ("rows", "fields", "wrong"),
    [
        (table_rows()[:-1], {}, "expected finite float16 numbers of shape"),
        (table_rows().astype(np.float32), {}, "expected finite float16 numbers of shape"),
        (table_rows() + np.float16(np.nan), {}, "expected finite float16 numbers of shape"),
        (None, {"bias": [0.0]}, "table.bias must have 3 numbers, one per label"),
        (None, {"file": "other.npy"}, "no sha256 for other.npy"),
        (None, {"temperature": 0}, "table.temperature"),
        (None, {"temperature": 1e-320}, "table.temperature"),
        (None, {"bias": [1e300, 0.0, 0.0]}, "table.bias"),
    ],
)
def test_a_wrong_table_is_refused(
    bundle_copy: Copy, rows: np.ndarray | None, fields: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(InvalidBundle, match=wrong):
        load_bundle(add_table(bundle_copy(), rows, **fields))


def test_rules_that_were_certified_without_the_table_hold_with_it(bundle_copy: Copy) -> None:
    folder = bundle_copy()
    manifest = load_bundle(folder).manifest
    weights = manifest.files[manifest.variants["fp32"].weights]
    rewrite_manifest(folder, calibration={"ladders": [ladder(weights=weights)]})
    before = load_bundle(folder).ladder("fp32")
    after = load_bundle(add_table(folder)).ladder("fp32")
    assert before
    assert after
    assert after.layers == (0, *before.exits)
    shares = [(0.0, *rung.exit_shares) for rung in before.rungs]
    assert [rung.exit_shares for rung in after.rungs] == shares
    assert list(map(after.mean_layers, after.rungs)) == list(map(before.mean_layers, before.rungs))


def test_rules_that_were_certified_with_another_table_hold_no_more(bundle_copy: Copy) -> None:
    folder = add_table(bundle_copy())
    manifest = load_bundle(folder).manifest
    weights = manifest.files[manifest.variants["fp32"].weights]
    certified = ladder(weights=weights, table="0" * 64)
    for part in certified["rungs"]:
        part["exit_shares"] = (0.0, *part["exit_shares"])
    certified.pop("decisions", None)
    rewrite_manifest(folder, calibration={"ladders": [certified]})
    bundle = load_bundle(folder)
    assert bundle.ladder("fp32") is None
    assert "are for another table" in why_uncertified(bundle, "fp32")
