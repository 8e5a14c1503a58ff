"""What the counts of audits say about a promise, valid however often it is looked at.

Both are mixtures of likelihood ratios (Robbins 1970). A mixture is a martingale where the rate is
as supposed, so by Ville's inequality the chance that it ever reaches 1/delta is at most delta. It
depends on two counts alone, whatever their order, so counts of several replicas add up.
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Counts: TypeAlias = "int | NDArray[Any]"

# How far rates that are tried lie above a promise, as shares of the way to 1.
_ABOVE: Final = np.geomspace(0.002, 0.5, 24)
# Mixtures of an interval: where differences are rare, and where nothing is known.
RARE: Final = (0.5, 10.0)
ANY: Final = (0.5, 0.5)
_HALVINGS: Final = 60
# The weight of all audits; the rest goes to those since the begins of days.
_OF_WHOLE: Final = 0.9


def log10_evidence(differences: Counts, audits: Counts, epsilon: float) -> NDArray[np.float64]:
    """Return the log10 of the evidence that more than a share epsilon of answers differ.

    The chance that it ever reaches `-log10(delta)` is at most delta as long as at most epsilon
    differ, even if it is read after every audit.

    Args:
        differences: number of audits that differ, an array of any shape.
        audits: number of audits, an array of the same shape.
        epsilon: what is promised, between 0 and 1.
    """
    differs, agrees = np.asarray(differences), np.asarray(audits) - np.asarray(differences)
    rates = epsilon + (1 - epsilon) * _ABOVE
    ratios = differs[..., None] * np.log(rates / epsilon)
    ratios = ratios + agrees[..., None] * np.log((1 - rates) / (1 - epsilon))
    largest = ratios.max(axis=-1)
    mean = np.exp(ratios - largest[..., None]).mean(axis=-1)
    return np.asarray((largest + np.log(mean)) / math.log(10))


def log10_restarted(
    whole: tuple[int, int], recent: Iterable[tuple[int, tuple[int, int]]], epsilon: float
) -> float:
    """Return the log10 of evidence that a long good time does not hide.

    A weighted mean of the evidence of all audits and of that since the begin of each recent day.
    The weights add up to 1 and are fixed in advance, so all that is said of `log10_evidence` holds.

    Args:
        whole: differences and audits.
        recent: the number of a day, from 1, and the same since its begin.
        epsilon: what is promised.
    """
    parts = [math.log10(_OF_WHOLE) + float(log10_evidence(*whole, epsilon))]
    for day, (differences, audits) in recent:
        weight = (1 - _OF_WHOLE) / (day * (day + 1))
        parts.append(math.log10(weight) + float(log10_evidence(differences, audits, epsilon)))
    largest = max(parts)
    return largest + math.log10(sum(10 ** (part - largest) for part in parts))


def confidence_sequence(
    differences: float, audits: float, delta: float, prior: tuple[float, float] = RARE
) -> tuple[float, float]:
    """Return bounds of the true rate that hold at all times at once, but for a chance of delta.

    They are the rates that the evidence of a two-sided mixture does not refute. `differences` may
    be a sum of values from 0 to 1, one per audit: its likelihood ratio is convex in each value, so
    its mean is largest for values of 0 and 1 alone (Hoeffding 1963), and the bounds hold for their
    mean. `prior` is the mixture's Beta distribution; where it is small, bounds are wider.
    """
    agrees = audits - differences
    observed = differences / audits if audits else 0.5
    mixture = _log_beta(prior[0] + differences, prior[1] + agrees) - _log_beta(*prior)
    least = mixture + math.log(delta)
    refuted = partial(_less_likely, differences, agrees, least)
    low = _boundary(refuted, 0.0, observed) if differences else 0.0
    high = _boundary(refuted, 1.0, observed) if agrees else 1.0
    return low, high


def _less_likely(differs: float, agrees: float, least: float, rate: float) -> bool:
    """Tell whether counts are less likely, in logarithms, at a rate above 0.

    A rate that is rounded to 1 is less likely than any other, as some answers agree.
    """
    return rate == 1.0 or differs * math.log(rate) + agrees * math.log1p(-rate) < least


def _boundary(refuted: "partial[bool]", outside: float, inside: float) -> float:
    """Return the last refuted rate on the way from a refuted one to one that is not."""
    for _ in range(_HALVINGS):
        middle = (outside + inside) / 2
        if refuted(middle):
            outside = middle
        else:
            inside = middle
    return outside


def _log_beta(alpha: float, beta: float) -> float:
    return math.lgamma(alpha) + math.lgamma(beta) - math.lgamma(alpha + beta)
