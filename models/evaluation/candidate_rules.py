"""The exit rules that are tried on a data set, by task."""

import itertools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from models.evaluation.predictions import Predictions
from serve.rules import EntropyRule, ExitRule, LayerRule, NeverRule, PatienceRule
from serve.rules.traits import Task

# All steps are tried when thresholds are chosen; every fifth one is published.
THRESHOLD_STEP = 0.01
PUBLISHED_EVERY = 5
# Most words are clearly outside any entity, so mean entropies are small: the steps are ratios.
TOKEN_THRESHOLDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5)
# A text's entropy is the mean over its tokens, or that of the least certain token.
REDUCTIONS: tuple[Literal["mean", "max"], ...] = ("mean", "max")
# Tolerances for agreeing values of a regression, as shares of the labels' standard deviation.
TOLERANCE_SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)


class CandidateRules(NamedTuple):
    """Exit rules to measure.

    Attributes:
        tried: tried when a policy is chosen, from strict to loose.
        published: rules whose figures are published.
    """

    tried: list[ExitRule]
    published: list[ExitRule]


def candidate_rules(predictions: Predictions) -> CandidateRules:
    """Return the rules for a data set."""
    return _BY_TASK[predictions.traits.task](predictions)


def _by_label(predictions: Predictions) -> CandidateRules:
    return _entropy(predictions, math.log(predictions.logits.shape[-1]))


def _by_labels(predictions: Predictions) -> CandidateRules:
    # Each label is a yes-or-no question.
    return _entropy(predictions, math.log(2))


def _entropy(predictions: Predictions, max_entropy: float) -> CandidateRules:
    steps = range(math.floor(max_entropy / THRESHOLD_STEP) + 1)
    tried: list[ExitRule] = [EntropyRule(threshold=round(s * THRESHOLD_STEP, 2)) for s in steps]
    return CandidateRules(tried, [*tried[::PUBLISHED_EVERY], *_patience(predictions)])


def _by_tokens(predictions: Predictions) -> CandidateRules:
    max_entropy = math.log(predictions.logits.shape[-1])
    thresholds = [t for t in TOKEN_THRESHOLDS if t < max_entropy]
    rules: list[ExitRule] = [NeverRule(), *_layers(predictions)]
    for reduce in REDUCTIONS:
        rules += [EntropyRule(threshold=t, reduce=reduce) for t in thresholds]
    rules += _patience(predictions)
    return CandidateRules(rules, rules)


def _by_value(predictions: Predictions) -> CandidateRules:
    # The first exits may agree only because none of them has learned the task.
    bounds = [None, *predictions.exits[1:-1]]
    rules: list[ExitRule] = [NeverRule(), *_layers(predictions)]
    for patience, tolerance, bound in itertools.product(
        _patience(predictions), _tolerances(predictions), bounds
    ):
        rules.append(patience.model_copy(update={"tolerance": tolerance, "min_layer": bound}))
    return CandidateRules(rules, [rule for rule in rules if rule.min_layer is None])


def _tolerances(predictions: Predictions) -> list[float]:
    spread = float(np.std(predictions.gold)) or 1.0
    return [float(f"{share * spread:.2g}") for share in TOLERANCE_SHARES]


def _layers(predictions: Predictions) -> list[LayerRule]:
    """Return the baselines: the same exit layer for every row, deepest first."""
    return [LayerRule(layer=layer) for layer in reversed(predictions.exits[:-1])]


def _patience(predictions: Predictions) -> list[PatienceRule]:
    # A higher patience would always wait for the last exit.
    return [PatienceRule(patience=n) for n in range(1, len(predictions.exits) - 1)]


_BY_TASK: dict[Task, Callable[[Predictions], CandidateRules]] = {
    "single_label": _by_label,
    "multi_label": _by_labels,
    "regression": _by_value,
    "token": _by_tokens,
}
