"""Temperatures that make exits like full depth: of the rules, and of the scores that are shown."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from models.quality.recorded import Recorded
from serve.policy.ladder import ScoreTemperatures
from serve.rules.signals import decisions, distributions, log_softmax, probabilities
from serve.rules.traits import Task

# Exits that always agree would otherwise be as sure as floats can be.
BOUNDS = (0.1, 10.0)
# Fewer texts that leave at an exit say less than all texts do.
FEWEST = 20


def fit_temperatures(tuning: Recorded) -> tuple[float, ...]:
    """Return the temperature of each exit with the likeliest answers of full depth; the last is 1.

    An exit's confidence is then how often it agrees with full depth.

    Args:
        tuning: texts that will not certify.
    """
    traits = tuning.traits
    if traits.task == "regression":
        return (1.0,) * len(traits.exits)
    options = [_options(tuning, logits) for logits in tuning.of_exits.logits]
    full = options[-1].argmax(axis=-1)
    return (*(_likeliest(each, full) for each in options[:-1]), 1.0)


def fit_score_temperatures(tuning: Recorded, exits: NDArray[np.intp]) -> ScoreTemperatures | None:
    """Return what brings the mean difference of scores to full depth's nearest to 0.

    A text counts at an exit as often as rules of the certified path let it leave there.

    Args:
        tuning: texts that will not certify.
        exits: (rules, rows) where the rules of the path let them leave: places in `Traits.layers`.

    Returns:
        Temperatures of each of these layers, those of the last are 1; None of a regression.
    """
    task = tuning.traits.task
    if task == "regression":
        return None
    full = probabilities(task, tuning.logits[-1])
    found = []
    for index, logits in enumerate(tuning.logits[:-1]):
        weights = (exits == index).sum(axis=0).astype(np.float64)
        if np.count_nonzero(weights) < FEWEST:
            weights = np.ones(len(weights))
        found.append(_of_scores(tuning, logits, full, weights))
    return (*found, (1.0,) * len(found[0]))


def _options(tuning: Recorded, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (decisions, options): of each label yes and no, of each token that counts its tags."""
    if tuning.traits.task != "single_label":
        logits = distributions(tuning.traits.task, logits)
    if tuning.counted is not None:
        logits = logits[tuning.counted]
    return np.nan_to_num(logits.reshape(-1, logits.shape[-1]))


def _likeliest(options: NDArray[np.float32], full: NDArray[np.intp]) -> float:
    rows = np.arange(len(full))

    def surprise(temperature: float) -> float:
        log_p = log_softmax(options / np.float32(temperature))
        return -float(log_p[rows, full].mean(dtype=np.float64))

    return _best(surprise)


def _of_scores(
    tuning: Recorded,
    logits: NDArray[np.float32],
    full: NDArray[np.float32],
    weights: NDArray[np.float64],
) -> tuple[float, ...]:
    """Return the temperature of an exit, or of several labels one of each."""
    task = tuning.traits.task
    if task == "multi_label":
        labels = range(logits.shape[1])
        return tuple(_nearest(task, logits[:, [i]], full[:, [i]], weights) for i in labels)
    if tuning.counted is not None:
        weights = np.repeat(weights, tuning.counted.sum(axis=1))
        logits, full = logits[tuning.counted], full[tuning.counted]
    return (_nearest("single_label", logits, full, weights),)


def _nearest(
    task: Task,
    logits: NDArray[np.float32],
    full: NDArray[np.float32],
    weights: NDArray[np.float64],
) -> float:
    """Return the temperature of rows with logits and wanted probabilities, both (rows, labels)."""
    answer = np.maximum(decisions("single_label", logits), 0)[:, None]
    wanted = np.take_along_axis(full, answer, axis=1)[:, 0]

    def difference(temperature: float) -> float:
        p = probabilities(task, np.nan_to_num(logits) / np.float32(temperature))
        shown = np.take_along_axis(p, answer, axis=1)[:, 0]
        return float(np.average(np.abs(shown - wanted), weights=weights))

    return _best(difference)


def _best(cost: Callable[[float], float]) -> float:
    """Return the temperature with the lowest cost, to three digits."""
    lowest, highest = map(math.log, BOUNDS)
    found = minimize_scalar(
        lambda log_temperature: cost(math.exp(log_temperature)),
        bounds=(lowest, highest),
        method="bounded",
    )
    return float(f"{math.exp(found.x):.3g}")
