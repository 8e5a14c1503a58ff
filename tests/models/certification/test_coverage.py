"""A thousand simulated calibrations: promises are broken no more often than they say."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from models.certification.risk_control import num_certified

Array = NDArray[np.float64]

NUM_CALIBRATIONS, NUM_TEXTS, NUM_RULES = 1000, 500, 60
EPSILON, DELTA = 0.02, 0.05
# Three standard errors of a share of so many calibrations.
MOST_BROKEN = DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / NUM_CALIBRATIONS)

PLACES = np.linspace(0, 1, NUM_RULES)
# The true risks of the rules of a path. The second falls below the bound again after rising above.
CURVES: dict[str, Array] = {
    "smooth": 0.06 * PLACES**2,
    "non-monotone": np.maximum(0, 0.03 * PLACES + 0.01 * np.sin(15 * PLACES)),
}


# A text that one rule loses is lost by all rules of more risk. Then the rules before the first bad
# one seldom stop a test that the bad one would pass.
def binary(risks: Array, draw: np.random.Generator) -> Array:
    """Return the mean losses of one calibration's texts, each 0 or 1."""
    mean: Array = (draw.random((NUM_TEXTS, 1)) < risks).mean(axis=0)
    return mean


def bounded(risks: Array, draw: np.random.Generator) -> Array:
    """Return the mean losses of one calibration's texts, each anywhere from 0 to 1."""
    lost = draw.random((NUM_TEXTS, 1)) < 2 * risks
    mean: Array = (lost * draw.random((NUM_TEXTS, 1))).mean(axis=0)
    return mean


LOSSES: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "binary": binary,
    "bounded": bounded,
}


def risks_used(
    curve: str, loss: str, choose: Callable[[Array], int], used: Callable[[Array], Array]
) -> Array:
    """Return (calibrations,) the largest true risk of the rules that may be used; 0 without."""
    draw, risks = np.random.default_rng(0), CURVES[curve]
    ends = [choose(LOSSES[loss](risks, draw)) for _ in range(NUM_CALIBRATIONS)]
    return np.array([used(risks[:end]).max(initial=0) for end in ends])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("curve", CURVES)
def test_certified_rules_keep_the_bound_as_often_as_promised(curve: str, loss: str) -> None:
    def choose(observed: Array) -> int:
        return num_certified(observed, NUM_TEXTS, EPSILON, DELTA, loss == "binary")

    # Every rule of a certified path may be used.
    risks = risks_used(curve, loss, choose, lambda path: path)
    assert (risks > EPSILON).mean() <= MOST_BROKEN
    assert risks.mean() > EPSILON / 4, "a choice that hardly leaves early would prove nothing"


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("curve", CURVES)
def test_the_fastest_rule_within_the_bound_on_the_same_texts_breaks_it(
    curve: str, loss: str
) -> None:
    """Profiles were chosen so before there were certificates."""

    def natural(risks: Array) -> int:
        return int(np.flatnonzero(risks <= EPSILON).max(initial=-1)) + 1

    risks = risks_used(curve, loss, natural, lambda path: path[-1:])
    assert (risks > EPSILON).mean() > 3 * MOST_BROKEN
