"""How far apart a row's two largest logits must be, at least, for its rule to let it leave.

Whatever the other logits are, the top probability is at most that of two labels so far apart, the
margin too, and the entropy at least theirs.
"""

import math
from collections.abc import Callable

from serve.criteria.carry import THRESHOLDS
from serve.criteria.compiled_rule import Compiled, compiler
from serve.criteria.rule_state import KINDS, NEVER
from serve.engine.runner import LEAVES
from serve.rules import (
    ConfidenceRule,
    EntropyRule,
    ExitRule,
    LayerRule,
    MarginRule,
    NormalizedEntropyRule,
)
from serve.rules.traits import Traits

# More than float32 errs in the signals that the gaps are compared with.
_SLACK = 1e-5
# Beyond, the second label's probability is 0 in float32.
_WIDEST = 120.0


def least_gaps(
    rule: ExitRule, traits: Traits, temperatures: tuple[float, ...]
) -> tuple[float, ...] | None:
    """Return (exits,) the gaps below which a row with this rule surely stays; None if unknown.

    Infinite where the rule lets no row leave, `LEAVES` where it surely lets it, 0 where nothing is
    sure.

    Args:
        rule: checked against the model.
        traits: of a single-label model with two labels or more.
        temperatures: one per exit.
    """
    compiled = compiler(traits)(rule)
    least, num_exits = _LEAST.get(compiled.kind), len(traits.exits)
    if least is None or set(compiled.carry) - {THRESHOLDS}:
        return None
    gaps = [
        least(threshold, len(traits.labels)) * temperature
        for threshold, temperature in zip(
            _thresholds(compiled, num_exits), _scales(compiled, temperatures), strict=True
        )
    ]
    gaps[: compiled.first] = [math.inf] * compiled.first
    gaps[compiled.last :] = [float(LEAVES)] * (num_exits - compiled.last)
    return tuple(gaps)


def _thresholds(compiled: Compiled, num_exits: int) -> list[float]:
    if THRESHOLDS in compiled.carry:
        own: list[float] = compiled.carry[THRESHOLDS].tolist()
        return own
    return [compiled.threshold] * num_exits


def _scales(compiled: Compiled, temperatures: tuple[float, ...]) -> tuple[float, ...]:
    if compiled.kind == KINDS.index(ConfidenceRule):
        return temperatures
    return (1.0,) * len(temperatures)


def _of_entropy(threshold: float, num_labels: int) -> float:
    """Return where two labels' entropy comes down to the threshold; more have more of it."""
    if threshold <= 0:
        return math.inf
    most = threshold + _SLACK
    narrow, wide = 0.0, _WIDEST
    while wide - narrow > 1e-9 * _WIDEST:
        middle = (narrow + wide) / 2
        if _entropy_of_two(middle) > most:
            narrow = middle
        else:
            wide = middle
    return narrow


def _entropy_of_two(gap: float) -> float:
    e = math.exp(-gap)
    return math.log1p(e) + gap * e / (1 + e)


def _of_normalized_entropy(threshold: float, num_labels: int) -> float:
    return _of_entropy(threshold * math.log(num_labels), num_labels)


def _of_confidence(threshold: float, num_labels: int) -> float:
    p = threshold - _SLACK
    return math.log(p / (1 - p)) if p > 0.5 else 0.0


def _of_margin(threshold: float, num_labels: int) -> float:
    p = threshold - _SLACK
    return 2 * math.atanh(p) if p > 0 else 0.0


def _of_none(threshold: float, num_labels: int) -> float:
    return math.inf


_LEAST: dict[int, Callable[[float, int], float]] = {
    KINDS.index(EntropyRule): _of_entropy,
    KINDS.index(NormalizedEntropyRule): _of_normalized_entropy,
    KINDS.index(ConfidenceRule): _of_confidence,
    KINDS.index(MarginRule): _of_margin,
    KINDS.index(LayerRule): _of_none,
    NEVER: _of_none,
}
# Kinds of rules that need nothing of exits at which they let no row leave.
COUNT_NOTHING = frozenset(_LEAST)
