"""Figures by name, whatever the task measures."""

import json

import pytest

from serve.bundle.calibration import ExitFigures, OperatingPoint, VariantCalibration
from serve.policy.ladder import Data
from serve.rules import LayerRule, NeverRule


def test_accuracy_is_one_figure_among_others() -> None:
    figures = ExitFigures(layer=2, accuracy=0.8, metrics={"f1": 0.7})
    assert figures.measured == ("accuracy", "f1")
    assert [figures.value(name) for name in figures.measured] == [0.8, 0.7]


def test_regression_has_no_accuracy() -> None:
    figures = ExitFigures(layer=2, metrics={"pearson": 0.9})
    assert figures.measured == ("pearson",)
    with pytest.raises(KeyError):
        figures.value("accuracy")


def test_figures_of_before_there_were_others_are_read_as_they_were() -> None:
    old = {
        "data": {"name": "d", "rows": 1, "sha256": "0"},
        "exits": [{"layer": 1, "accuracy": 0.5}],
        "operating_points": [
            {"rule": {"rule": "never"}, "accuracy": 0.5, "agreement": 1.0, "mean_exit_layer": 1.0}
        ],
    }
    variant = VariantCalibration.model_validate_json(json.dumps(old))
    assert variant.metric == "accuracy"
    assert variant.exits[0].measured == variant.operating_points[0].measured == ("accuracy",)


def test_fewer_exits_are_judged_by_the_same_metric() -> None:
    points = [
        OperatingPoint(rule=rule, metrics={"pearson": 0.9}, mean_exit_layer=1)
        for rule in (NeverRule(), LayerRule(layer=1), LayerRule(layer=2))
    ]
    variant = VariantCalibration(
        data=Data(name="d", rows=1, sha256="0"),
        metric="pearson",
        exits=(ExitFigures(layer=1), ExitFigures(layer=2)),
        operating_points=tuple(points),
    ).on_exits((2,))
    assert variant.metric == "pearson"
    assert [point.rule for point in variant.operating_points] == [NeverRule(), LayerRule(layer=2)]
