"""The chart refuses wrong values, each with a sentence that says what to set."""

from pathlib import Path

import pytest
import yaml

from tests.helm.chart import CHART, Refused, render, run_helm
from tests.helm.matrix import Values

CASES = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text())


@pytest.mark.parametrize(
    ("values", "sentence"), CASES["contradictions"], ids=[s for _, s in CASES["contradictions"]]
)
def test_contradiction_is_refused_with_a_sentence(values: Values, sentence: str) -> None:
    with pytest.raises(Refused) as refusal:
        render(values)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(("values", "place"), CASES["outside the schema"], ids=str)
def test_value_outside_the_schema_is_refused_by_name(values: Values, place: str) -> None:
    with pytest.raises(Refused, match="(?s)schema.*" + place):
        render(values)


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(Refused, match=r"(?s)gpu.enabled needs.*ingress.enabled needs"):
        render({"gpu": {"enabled": True}, "ingress": {"enabled": True}})


def test_chart_without_values_says_which_are_missing() -> None:
    with pytest.raises(Refused, match=r"(?s)bundles\.names is empty.*bundles\.source is not set"):
        run_helm("template", "prod", CHART)
