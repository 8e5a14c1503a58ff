"""Rows judged exit by exit, as the engine does, without an engine."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from serve.rules import EXIT_RULE, ExitRule, compile_rule
from serve.rules.criterion import HeadOutput, Reason
from serve.rules.judge import RuleState, judge
from serve.rules.signals import decisions
from serve.rules.traits import Traits

NUM_EXITS = 6
NAN = float("nan")
THREE = Traits(tuple(range(1, NUM_EXITS + 1)), ("a", "b", "c"))


class Left(NamedTuple):
    """How a row left.

    Attributes:
        index: exit, counted from 0.
        reason: why.
        logits: its answer.
        head: whose answer, counted from 0.
        label: the answer's; -1 for none.
    """

    index: int
    reason: Reason
    logits: np.ndarray
    head: int
    label: int


def rule(name: str, **fields: Any) -> ExitRule:
    """Return a rule from its JSON."""
    return EXIT_RULE.validate_python({"rule": name, **fields})


def state_of(rules: Sequence[ExitRule], traits: Traits) -> RuleState:
    """Return the state of fresh rows, one rule per row."""
    return RuleState.of([compile_rule(each, traits) for each in rules])


def judged(
    rules: Sequence[ExitRule],
    heads: Sequence[HeadOutput] | np.ndarray,
    traits: Traits = THREE,
    temperatures: Sequence[float] = (1.0,) * NUM_EXITS,
) -> list[Left]:
    """Judge rows exit by exit, compacting on the way.

    Args:
        rules: one per row.
        heads: what every exit gives for all rows; or just (exits, rows, labels) logits.
        traits: of the model.
        temperatures: one per exit.
    """
    state = state_of(rules, traits)
    alive, left = np.arange(len(rules)), {}
    for index, head in enumerate(heads):
        output = (HeadOutput(head) if isinstance(head, np.ndarray) else head).of(alive)
        decision = judge(state, output, index, len(heads), temperatures[index])
        gone = decision.reasons != Reason.STAYS
        for i in np.flatnonzero(gone):
            logits, answering, label = output.logits[i], index, -1
            if decision.prediction is not None:
                logits, answering, label = (values[i] for values in decision.prediction)
            if label < 0 and traits.task == "single_label":
                label = decisions(traits.task, logits)
            left[alive[i]] = Left(index, Reason(decision.reasons[i]), logits, answering, int(label))
        alive, state = alive[~gone], state.take(np.flatnonzero(~gone))
    return [left[i] for i in range(len(rules))]


def saying(labels: str, sureness: float = 5) -> np.ndarray:
    """Return (exits, 1, 3) logits for exits that say a, b or c; `?` gives NaN."""
    logits = np.zeros((len(labels), 1, 3), np.float32)
    for index, label in enumerate(labels):
        logits[index, 0] = NAN if label == "?" else sureness * np.eye(3)["abc".index(label)]
    return logits


def left_at(each: ExitRule, logits: np.ndarray, traits: Traits = THREE) -> int:
    """Return the exit, counted from 0, at which the one row leaves."""
    ((index, *_),) = judged([each], logits, traits)
    return index
