"""Figures by name, whatever the task measures."""

import json

import pytest

from serve.bundle.calibration import ExitFigures, VariantCalibration
from serve.policy.ladder import Data


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
