"""A bundle says what it holds, and the figures of its exits."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from serve.bundle.calibration import ExitFigures, VariantCalibration
from serve.bundle.loader import CALIBRATION, load_bundle
from serve.policy.ladder import Data
from tests.serve.support.bundles import rewrite_manifest
from tests.support.tiny import DEPTH, LABELS, MAX_TOKENS, POLICY

CopyBundle = Callable[..., Path]


def test_bundle_says_what_it_holds(bundle_folder: Path) -> None:
    bundle = load_bundle(bundle_folder)
    assert bundle.name == bundle_folder.name
    assert bundle.manifest.labels == LABELS
    assert bundle.manifest.exit_layers == tuple(range(1, DEPTH + 1))
    assert bundle.manifest.num_layers == DEPTH
    assert bundle.manifest.max_tokens == MAX_TOKENS
    assert bundle.manifest.policy == POLICY
    assert bundle.tokenizer_path.is_file()
    for precision in ("fp32", "int8"):
        paths = bundle.segment_paths(precision)
        assert [path.name for path in paths] == [f"{i:02}.onnx" for i in range(1, DEPTH + 1)]
        graphs = [*paths, bundle.joined_path(precision), bundle.weights_path(precision)]
        assert all(path.is_file() for path in graphs)


def test_bundle_is_found_by_a_relative_path(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bundle_folder)
    assert load_bundle(".").name == bundle_folder.name
    assert load_bundle(".").folder.is_absolute()


def test_bundle_may_be_reached_through_a_link(bundle_folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "alias"
    link.symlink_to(bundle_folder)
    assert load_bundle(link).manifest == load_bundle(bundle_folder).manifest


def test_files_beside_the_listed_ones_do_no_harm(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    (folder / "notes.txt").write_text("mine")
    load_bundle(folder)


def test_calibration_is_read_when_it_is_listed(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    assert not load_bundle(folder).calibration.variants
    (folder / CALIBRATION).write_text("not listed, so not read")
    assert not load_bundle(folder).calibration.variants
    figures = {
        "data": {"name": "d", "rows": 1, "sha256": "0"},
        "exits": [],
    }
    rewrite_manifest(folder, calibration={"variants": {"fp32": figures}})
    assert load_bundle(folder).calibration.variants["fp32"].data.name == "d"


def test_a_bundle_has_the_figures_of_the_exits_that_are_used(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    figures = {
        "data": {"name": "d", "rows": 1, "sha256": "0"},
        "exits": [{"layer": layer, "accuracy": 0.5} for layer in (1, 2, 3, 4)],
    }
    rewrite_manifest(folder, calibration={"variants": {"fp32": figures}})
    found = load_bundle(folder).presenting((1, 4)).calibration.variants["fp32"].exits
    assert [exit_.layer for exit_ in found] == [1, 4]


def test_accuracy_is_one_figure_among_others() -> None:
    figures = ExitFigures(layer=2, accuracy=0.8, metrics={"f1": 0.7})
    assert figures.measured == ("accuracy", "f1")
    assert [figures.value(name) for name in figures.measured] == [0.8, 0.7]


def test_regression_has_no_accuracy() -> None:
    figures = ExitFigures(layer=2, metrics={"pearson": 0.9})
    assert figures.measured == ("pearson",)
    with pytest.raises(KeyError):
        figures.value("accuracy")


def test_figures_of_uncertified_rules_in_older_bundles_are_not_read() -> None:
    old = {
        "data": {"name": "d", "rows": 1, "sha256": "0"},
        "exits": [{"layer": 1, "accuracy": 0.5}],
        "operating_points": [{"rule": {"rule": "never"}, "accuracy": 0.5}],
    }
    variant = VariantCalibration.model_validate_json(json.dumps(old))
    assert variant.metric == "accuracy"
    assert variant.model_dump().keys() == {"data", "metric", "exits"}


def test_fewer_exits_are_judged_by_the_same_metric() -> None:
    variant = VariantCalibration(
        data=Data(name="d", rows=1, sha256="0"),
        metric="pearson",
        exits=(ExitFigures(layer=1), ExitFigures(layer=2)),
    ).on_exits((2,))
    assert (variant.metric, [e.layer for e in variant.exits]) == ("pearson", [2])
