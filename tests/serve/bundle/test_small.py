"""The bundle of a small model inside a large one's."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve.bundle.loader import MANIFEST, load_bundle
from serve.classifier.variant import why_uncertified
from serve.errors import InvalidBundle
from serve.policy.ladder import Ladder
from serve.rules.small import SmallModel
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.ladders import NEVER, certify, rung
from tests.serve.support.small_models import NUM_SMALL_EXITS, put_in_front, write_small
from tests.serve.support.tables import add_table
from tests.serve.support.task_bundles import EXITS, Kind, write_task_bundle

Change = Callable[[dict[str, Any]], Any]
ENTROPY = {"rule": "entropy", "threshold": 0.2}
SHARES = [(0, 0, 1), (0, 0.5, 0.5)]
OWN = {"exits": EXITS, "temperatures": [1.0] * len(EXITS), "decisions": [], "metric": None}


@pytest.fixture
def large(tmp_path: Path) -> Path:
    return write_task_bundle(tmp_path, Kind("single_label"), "tiny")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_small(tmp_path)


def rungs(*before: float) -> list[dict[str, Any]]:
    rules = NEVER, ENTROPY
    return [rung(rule, (*before, *own), 0) for rule, own in zip(rules, SHARES, strict=True)]


def test_its_exits_are_places_before_the_first_layer(large: Path, small: Path) -> None:
    bundle = load_bundle(add_table(put_in_front(large, small)))
    traits = bundle.manifest.traits
    assert traits.layers == (0, *(0,) * NUM_SMALL_EXITS, *EXITS)
    assert [traits.small_layer(i) for i in range(-4, 1)] == [None, *EXITS, None]
    assert bundle.small
    assert bundle.small.manifest.labels == bundle.manifest.labels[::-1]


def _labels(manifest: dict[str, Any]) -> None:
    manifest["labels"] = ["bad", "good", "neutral"]


def _int8(manifest: dict[str, Any]) -> None:
    manifest["variants"]["int8"] = manifest["variants"].pop("fp32")


def _task(manifest: dict[str, Any]) -> None:
    manifest["task"] = "multi_label"


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (_labels, "its labels are bad, good, neutral, and the large model's"),
        (_int8, "it has no variant fp32; export it with --precision fp32"),
        (_task, "its task is multi_label, and the large model's single_label"),
    ],
)
def test_an_unfit_one_is_refused(large: Path, small: Path, change: Change, wrong: str) -> None:
    rewrite_manifest(small, change)
    with pytest.raises(InvalidBundle, match=wrong):
        load_bundle(put_in_front(large, small))


def test_one_with_a_small_model_of_its_own_is_refused(large: Path, small: Path) -> None:
    nested = put_in_front(small, write_small(small.parent / "other"))
    with pytest.raises(InvalidBundle, match="a small model in front itself"):
        load_bundle(put_in_front(large, nested))


@pytest.mark.parametrize(
    ("facts", "wrong"),
    [
        ({"exits": (1, 4), "temperatures": (1.0, 1.0)}, "its exits are not those that manifest"),
        ({"temperatures": (1.0,)}, "one temperature for each of its exits"),
        ({"sha256": "0" * 64}, "small: its sha256 is not that of small-000000000000/manifest"),
        ({"layer_cost": 0}, "small.layer_cost"),
    ],
)
def test_wrong_facts_are_refused(
    large: Path, small: Path, facts: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(InvalidBundle, match=wrong):
        load_bundle(put_in_front(large, small, **facts))


def test_damaged_files_are_named(large: Path, small: Path) -> None:
    folder = put_in_front(large, small)
    (inside,) = folder.glob("small-*")
    graph = next(inside.rglob("01.onnx"))
    content = graph.read_bytes()
    graph.write_bytes(content[:-1] + b"x")
    with pytest.raises(InvalidBundle, match=r"small-\w+: segments/fp32/01.onnx is damaged"):
        load_bundle(folder)
    graph.write_bytes(content)
    (inside / MANIFEST).write_text("{}")
    with pytest.raises(InvalidBundle, match=r"small-\w+/manifest.json"):
        load_bundle(folder)
    shutil.rmtree(inside)
    with pytest.raises(InvalidBundle, match=r"small-\w+/manifest.json"):
        load_bundle(folder)


def test_models_of_other_tasks_have_none(tmp_path: Path) -> None:
    large = write_task_bundle(tmp_path, Kind("token"), "tiny")
    small = write_task_bundle(tmp_path, Kind("token"), "little")
    with pytest.raises(InvalidBundle, match="a model of task token has none in front"):
        load_bundle(put_in_front(large, small))


def test_rules_that_were_certified_without_one_hold_with_it(large: Path, small: Path) -> None:
    before = load_bundle(certify(large, "fp32", **OWN, rungs=rungs())).ladder("fp32")
    after = load_bundle(put_in_front(large, small)).ladder("fp32")
    assert before
    assert after
    assert after.layers == (*(0,) * NUM_SMALL_EXITS, *EXITS)
    assert [each.exit_shares for each in after.rungs] == [(0, 0, 0, *each) for each in SHARES]
    assert list(map(after.mean_layers, after.rungs)) == list(map(before.mean_layers, before.rungs))


def test_between_a_table_and_the_exits_new_places_are_empty(large: Path, small: Path) -> None:
    add_table(large)
    table = load_bundle(large).manifest.files["table.npy"]
    certify(large, "fp32", **OWN, table=table, rungs=rungs(0.0), score_temperatures=[[2.0]] * 4)
    ladder = load_bundle(put_in_front(large, small)).ladder("fp32")
    assert ladder
    assert ladder.score_temperatures == ((2.0,), *((1.0,),) * NUM_SMALL_EXITS, *((2.0,),) * 3)


def test_rules_that_were_certified_with_another_one_hold_no_more(large: Path, small: Path) -> None:
    folder = put_in_front(large, small)
    own = json.loads((folder / MANIFEST).read_bytes())["small"]
    before = (0.0,) * NUM_SMALL_EXITS
    for facts, holds in ((own, True), ({**own, "sha256": "1" * 64}, False)):
        bundle = load_bundle(certify(folder, "fp32", **OWN, small=facts, rungs=rungs(*before)))
        assert (bundle.ladder("fp32") is not None) is holds
    assert "are for another table or small model" in why_uncertified(bundle, "fp32")


def test_layers_of_a_rule_that_runs_it_count_it_for_all(large: Path, small: Path) -> None:
    own = json.loads((put_in_front(large, small) / MANIFEST).read_bytes())["small"]
    shares = (0.5, 0, 0.25, 0, 0, 0.25)
    both = [rung(NEVER, (0, 0, 0, 0, 0, 1), 0), rung({**NEVER, "small": 0.9}, shares, 0)]
    certify(large, "fp32", **OWN, small=SmallModel(**own).model_dump(), rungs=both)
    ladder = load_bundle(large).ladder("fp32")
    assert isinstance(ladder, Ladder)
    assert ladder.mean_layers(ladder.rungs[1]) == 0.5 * 0.25 + 0.25 * 1 + 0.25 * (1 + 4)
