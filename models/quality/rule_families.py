"""Families of exit rules to draw as curves, each from never leaving to leaving at once.

Thresholds are quantiles of what the rule would have compared on the data itself, so that every
model's curve has points at all depths.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from models.quality.recorded import Recorded
from serve.bundle.manifest import TrainedFor
from serve.rules import (
    ConfidenceRule,
    ConfidentPatienceRule,
    EntropyRule,
    ExitRule,
    LearnedRule,
    MarginRule,
    NeverRule,
    NormalizedEntropyRule,
    PatienceRule,
    VotingRule,
)
from serve.rules.rule import Rule

NUM_THRESHOLDS = 32

Families: TypeAlias = Mapping[str, list[ExitRule]]

ENTROPY, CONFIDENCE, MARGIN, LEARNED = "entropy", "confidence", "margin", "predicted error"
PATIENCE, CONFIDENT_PATIENCE = "patience", "confident patience 2"
# Of checkpoints that state no rule.
_BY_METHOD = {"PABEE": PATIENCE, "PCEE-BERT": CONFIDENT_PATIENCE}


class _Threshold(NamedTuple):
    """A kind of rule with one number.

    Attributes:
        rule: from its number.
        below: whether rows leave below the number, not above.
        most: the largest number that the rule takes.
        probe: a rule that compares the same signal, where this one's own is another.
    """

    rule: Callable[[float], ExitRule]
    below: bool = True
    most: float = math.inf
    probe: Rule | None = None


def rule_families(recorded: Recorded) -> Families:
    """Return the families that suit the model, by name; none for a model with a single exit."""
    if len(recorded.traits.exits) < 2:
        return {}
    families = {name: _thresholds(recorded, kind) for name, kind in _kinds(recorded).items()}
    families |= _counting(recorded)
    return {name: [NeverRule(), *rules] for name, rules in families.items() if rules}


def headline_family(recorded: Recorded, trained_for: TrainedFor) -> str:
    """Return the family that the model was trained for, chosen before anything is measured."""
    if recorded.uncertainty is not None:
        return LEARNED
    if isinstance(trained_for.rule, PatienceRule) or recorded.traits.task == "regression":
        return PATIENCE
    if isinstance(trained_for.rule, ConfidenceRule):
        return CONFIDENCE
    return _BY_METHOD.get(trained_for.method or "", ENTROPY)


def _kinds(recorded: Recorded) -> dict[str, _Threshold]:
    task, kinds = recorded.traits.task, dict[str, _Threshold]()
    if task != "regression":
        kinds = _one_label(recorded) if task == "single_label" else _parts(recorded)
    if recorded.uncertainty is not None:
        kinds[LEARNED] = _Threshold(lambda t: LearnedRule(threshold=t), most=1.0)
    return kinds


def _one_label(recorded: Recorded) -> dict[str, _Threshold]:
    kinds = {
        ENTROPY: _Threshold(lambda t: EntropyRule(threshold=t)),
        CONFIDENCE: _Threshold(lambda t: ConfidenceRule(threshold=t), below=False),
        MARGIN: _Threshold(lambda t: MarginRule(threshold=t), below=False),
        CONFIDENT_PATIENCE: _Threshold(
            lambda t: ConfidentPatienceRule(threshold=t, patience=2),
            most=1.0,
            # Its own signal is a count of exits.
            probe=NormalizedEntropyRule(threshold=0.5),
        ),
    }
    if len(recorded.traits.labels) == 2:
        # Two labels' margin and confidence order texts as their entropy does.
        del kinds[MARGIN]
        if len(set(recorded.temperatures)) == 1:
            del kinds[CONFIDENCE]
    return kinds


def _parts(recorded: Recorded) -> dict[str, _Threshold]:
    def by_entropy(threshold: float, reduce: str) -> ExitRule:
        return EntropyRule.model_validate({"threshold": threshold, "reduce": reduce})

    part = "token" if recorded.traits.task == "token" else "label"
    return {
        ENTROPY: _Threshold(partial(by_entropy, reduce="mean")),
        f"entropy of the least sure {part}": _Threshold(partial(by_entropy, reduce="max")),
        CONFIDENCE: _Threshold(lambda t: ConfidenceRule(threshold=t), below=False),
    }


def _thresholds(recorded: Recorded, kind: _Threshold) -> list[ExitRule]:
    """Return a family's rules, from strict to loose."""
    signals = recorded.signals(kind.probe or kind.rule(0.5))[:-1]
    known = signals[np.isfinite(signals)].astype(np.float64)
    if not len(known):
        return []
    values = np.quantile(known, np.linspace(0, 1, NUM_THRESHOLDS))
    if kind.below:
        values[-1] = np.nextafter(np.float32(values[-1]), np.float32(np.inf))
    values = np.minimum(values, kind.most)
    return _rules(kind.rule, values if kind.below else values[::-1])


def _rules(rule: Callable[[float], ExitRule], values: Iterable[float]) -> list[ExitRule]:
    return [rule(value) for value in dict.fromkeys(float(np.float32(v)) for v in values)]


def _counting(recorded: Recorded) -> dict[str, list[ExitRule]]:
    """Return the families that count exits which agree."""
    num_exits = len(recorded.traits.exits)
    # A higher patience would always wait for the last exit.
    counts = range(num_exits - 2, 0, -1)
    if recorded.traits.task == "regression":
        return {
            PATIENCE if n == 1 else f"patience {n}": tolerances(recorded, n)
            for n in reversed(counts[-2:])
        }
    families: dict[str, list[ExitRule]] = {PATIENCE: [PatienceRule(patience=n) for n in counts]}
    if recorded.traits.task == "single_label":
        families["voting"] = [VotingRule(votes=n) for n in range(num_exits - 1, 1, -1)]
    return families


def tolerances(recorded: Recorded, patience: int) -> list[ExitRule]:
    """Return a patience with many tolerances of a regression, from strict to loose."""
    values = recorded.logits[..., 0]
    moved = np.abs(np.diff(values, axis=0))
    known = moved[(moved > 0) & np.isfinite(moved)]
    shares = np.linspace(0, 1, NUM_THRESHOLDS)[1:]
    # Where no exit moves, the smallest tolerance is enough.
    quantiles = np.quantile(known, shares) if len(known) else np.zeros(1)
    quantiles[-1] = np.nextafter(np.float32(quantiles[-1]), np.float32(np.inf))
    return _rules(lambda t: PatienceRule(patience=patience, tolerance=t), quantiles)
