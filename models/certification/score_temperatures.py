"""Temperatures at which an exit's probabilities are most like full depth's."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from models.certification.replay import Replay
from models.certification.temperatures import BOUNDS
from models.quality.recorded import Recorded
from serve.policy.ladder import ScoreTemperatures
from serve.rules.signals import decisions, probabilities
from serve.rules.traits import Task

# Fewer texts that leave at an exit say less than all texts do.
FEWEST = 20


def fit_score_temperatures(tuning: Recorded, replay: Replay) -> ScoreTemperatures | None:
    """Return what brings the mean difference of scores to full depth's nearest to 0.

    A text counts at an exit as often as rules of the certified path let it leave there.

    Args:
        tuning: texts that will not certify.
        replay: of the path on the same texts.
    """
    task = tuning.traits.task
    if task == "regression":
        return None
    full = probabilities(task, tuning.logits[-1])
    found = []
    for index, logits in enumerate(tuning.logits[:-1]):
        weights = (replay.exits == index).sum(axis=0).astype(np.float64)
        if np.count_nonzero(weights) < FEWEST:
            weights = np.ones(len(weights))
        found.append(_of_exit(tuning, logits, full, weights))
    return (*found, (1.0,) * len(found[0]))


def _of_exit(
    tuning: Recorded,
    logits: NDArray[np.float32],
    full: NDArray[np.float32],
    weights: NDArray[np.float64],
) -> tuple[float, ...]:
    """Return the temperature of an exit, or of several labels one of each."""
    task = tuning.traits.task
    if task == "multi_label":
        labels = range(logits.shape[1])
        return tuple(_fit(task, logits[:, [i]], full[:, [i]], weights) for i in labels)
    if tuning.counted is not None:
        weights = np.repeat(weights, tuning.counted.sum(axis=1))
        logits, full = logits[tuning.counted], full[tuning.counted]
    return (_fit("single_label", logits, full, weights),)


def _fit(
    task: Task,
    logits: NDArray[np.float32],
    full: NDArray[np.float32],
    weights: NDArray[np.float64],
) -> float:
    """Return the temperature of rows with logits and wanted probabilities, both (rows, labels)."""
    answer = np.maximum(decisions("single_label", logits), 0)[:, None]
    wanted = np.take_along_axis(full, answer, axis=1)[:, 0]

    def difference(log_temperature: float) -> float:
        p = probabilities(task, np.nan_to_num(logits) / np.float32(math.exp(log_temperature)))
        shown = np.take_along_axis(p, answer, axis=1)[:, 0]
        return float(np.average(np.abs(shown - wanted), weights=weights))

    lowest, highest = map(math.log, BOUNDS)
    found = minimize_scalar(difference, bounds=(lowest, highest), method="bounded")
    return float(f"{math.exp(found.x):.3g}")
