"""Temperatures at which an exit's confidence is how often it agrees with full depth."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from models.quality.recorded import Recorded
from serve.rules.signals import distributions, log_softmax

# Exits that always agree would otherwise be as sure as floats can be.
BOUNDS = (0.1, 10.0)


def fit_temperatures(tuning: Recorded) -> tuple[float, ...]:
    """Return the temperature of each exit with the likeliest answers of full depth; the last is 1.

    Args:
        tuning: texts that will not certify.
    """
    traits = tuning.traits
    if traits.task == "regression":
        return (1.0,) * len(traits.exits)
    options = [_options(tuning, logits) for logits in tuning.logits]
    full = options[-1].argmax(axis=-1)
    return (*(_fit(each, full) for each in options[:-1]), 1.0)


def _options(tuning: Recorded, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (decisions, options): of each label yes and no, of each token that counts its tags."""
    if tuning.traits.task != "single_label":
        logits = distributions(tuning.traits.task, logits)
    if tuning.counted is not None:
        logits = logits[tuning.counted]
    return np.nan_to_num(logits.reshape(-1, logits.shape[-1]))


def _fit(options: NDArray[np.float32], full: NDArray[np.intp]) -> float:
    rows = np.arange(len(full))

    def surprise(log_temperature: float) -> float:
        log_p = log_softmax(options / np.float32(math.exp(log_temperature)))
        return -float(log_p[rows, full].mean(dtype=np.float64))

    lowest, highest = map(math.log, BOUNDS)
    found = minimize_scalar(surprise, bounds=(lowest, highest), method="bounded")
    return float(f"{math.exp(found.x):.3g}")
