"""The exit rules whose figures are published with a model, by task."""

import itertools
import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from models.evaluation.predictions import Predictions
from serve.rules import EntropyRule, ExitRule, LayerRule, NeverRule, PatienceRule
from serve.rules.traits import Task

THRESHOLD_STEP = 0.05
# Most words are clearly outside any entity, so mean entropies are small: the steps are ratios.
TOKEN_THRESHOLDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5)
# A text's entropy is the mean over its tokens, or that of the least certain token.
REDUCTIONS: tuple[Literal["mean", "max"], ...] = ("mean", "max")
# Tolerances for agreeing values of a regression, as shares of the labels' standard deviation.
TOLERANCE_SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)


def published_rules(predictions: Predictions) -> list[ExitRule]:
    """Return the rules for a data set."""
    return _BY_TASK[predictions.traits.task](predictions)


def _by_label(predictions: Predictions) -> list[ExitRule]:
    return _entropy(predictions, math.log(predictions.logits.shape[-1]))


def _by_labels(predictions: Predictions) -> list[ExitRule]:
    # Each label is a yes-or-no question.
    return _entropy(predictions, math.log(2))


def _entropy(predictions: Predictions, max_entropy: float) -> list[ExitRule]:
    steps = range(math.floor(max_entropy / THRESHOLD_STEP) + 1)
    rules = [EntropyRule(threshold=round(step * THRESHOLD_STEP, 2)) for step in steps]
    return [*rules, *_patience(predictions)]


def _by_tokens(predictions: Predictions) -> list[ExitRule]:
    max_entropy = math.log(predictions.logits.shape[-1])
    thresholds = [t for t in TOKEN_THRESHOLDS if t < max_entropy]
    rules: list[ExitRule] = [NeverRule(), *_layers(predictions)]
    for reduce in REDUCTIONS:
        rules += [EntropyRule(threshold=t, reduce=reduce) for t in thresholds]
    return [*rules, *_patience(predictions)]


def _by_value(predictions: Predictions) -> list[ExitRule]:
    agreeing = itertools.product(_patience(predictions), _tolerances(predictions))
    return [
        NeverRule(),
        *_layers(predictions),
        *(patience.model_copy(update={"tolerance": t}) for patience, t in agreeing),
    ]


def _tolerances(predictions: Predictions) -> list[float]:
    spread = float(np.std(predictions.gold)) or 1.0
    return [float(f"{share * spread:.2g}") for share in TOLERANCE_SHARES]


def _layers(predictions: Predictions) -> list[LayerRule]:
    """Return the baselines: the same exit layer for every row, deepest first."""
    return [LayerRule(layer=layer) for layer in reversed(predictions.exits[:-1])]


def _patience(predictions: Predictions) -> list[PatienceRule]:
    # A higher patience would always wait for the last exit.
    return [PatienceRule(patience=n) for n in range(1, len(predictions.exits) - 1)]


_BY_TASK: dict[Task, Callable[[Predictions], list[ExitRule]]] = {
    "single_label": _by_label,
    "multi_label": _by_labels,
    "regression": _by_value,
    "token": _by_tokens,
}
