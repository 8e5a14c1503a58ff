"""Exit rules worth trying on a data set, by task."""

import itertools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from models.evaluation.outcome import Outcome
from serve.rules import EntropyRule, ExitRule, LayerRule, NeverRule, PatienceRule
from serve.rules.traits import Task

# Every step is tried when thresholds are chosen; every fifth is published.
THRESHOLD_STEP = 0.01
PUBLISHED_EVERY = 5
# Most words are plainly outside any entity, so a text's mean entropy is small: steps by ratio.
TOKEN_THRESHOLDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5)
# Whether a text is as sure as its tokens are on the whole, or as the least sure of them.
REDUCTIONS: tuple[Literal["mean", "max"], ...] = ("mean", "max")
# How far a regression's values may lie apart and still agree, as shares of what they vary by.
TOLERANCE_SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)


class Candidates(NamedTuple):
    """Rules of one kind after the other.

    Attributes:
        tried: when a policy is chosen, tight to loose.
        published: figures of these are shown.
    """

    tried: list[ExitRule]
    published: list[ExitRule]


def candidates(outcome: Outcome) -> Candidates:
    """Return the rules to try on a data set."""
    return _BY_TASK[outcome.traits.task](outcome)


def _by_label(outcome: Outcome) -> Candidates:
    return _entropy(outcome, math.log(outcome.logits.shape[-1]))


def _by_labels(outcome: Outcome) -> Candidates:
    # Each label is a yes or no of its own.
    return _entropy(outcome, math.log(2))


def _entropy(outcome: Outcome, ceiling: float) -> Candidates:
    steps = range(math.floor(ceiling / THRESHOLD_STEP) + 1)
    tried: list[ExitRule] = [EntropyRule(threshold=round(s * THRESHOLD_STEP, 2)) for s in steps]
    return Candidates(tried, [*tried[::PUBLISHED_EVERY], *_patience(outcome)])


def _by_tokens(outcome: Outcome) -> Candidates:
    ceiling = math.log(outcome.logits.shape[-1])
    thresholds = [t for t in TOKEN_THRESHOLDS if t < ceiling]
    rules: list[ExitRule] = [NeverRule(), *_layers(outcome)]
    for reduce in REDUCTIONS:
        rules += [EntropyRule(threshold=t, reduce=reduce) for t in thresholds]
    rules += _patience(outcome)
    return Candidates(rules, rules)


def _by_value(outcome: Outcome) -> Candidates:
    # Early values may agree only because nothing has been understood yet.
    bounds = [None, *outcome.exits[1:-1]]
    rules: list[ExitRule] = [NeverRule(), *_layers(outcome)]
    for patience, tolerance, bound in itertools.product(
        _patience(outcome), _tolerances(outcome), bounds
    ):
        rules.append(patience.model_copy(update={"tolerance": tolerance, "min_layer": bound}))
    return Candidates(rules, [rule for rule in rules if rule.min_layer is None])


def _tolerances(outcome: Outcome) -> list[float]:
    spread = float(np.std(outcome.gold)) or 1.0
    return [float(f"{share * spread:.2g}") for share in TOLERANCE_SHARES]


def _layers(outcome: Outcome) -> list[LayerRule]:
    """Return what a rule has to beat: the same layer for every row, deepest first."""
    return [LayerRule(layer=layer) for layer in reversed(outcome.exits[:-1])]


def _patience(outcome: Outcome) -> list[PatienceRule]:
    # One more would wait for the last exit.
    return [PatienceRule(patience=n) for n in range(1, len(outcome.exits) - 1)]


_BY_TASK: dict[Task, Callable[[Outcome], Candidates]] = {
    "single_label": _by_label,
    "multi_label": _by_labels,
    "regression": _by_value,
    "token": _by_tokens,
}
