"""Rules tried on what every exit said of some texts, without running the model."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.errors import InvalidRule
from serve.rules.compiled_rule import compile_rule
from serve.rules.head_output import HeadOutput
from serve.rules.judge import Decision, judge
from serve.rules.kinds.threshold import LearnedRule
from serve.rules.reason import Reason
from serve.rules.rule import Rule
from serve.rules.rule_state import RuleState
from serve.rules.traits import Traits

# Logits: (exits, rows, labels); for token classification (exits, rows, tokens, labels).
Recording: TypeAlias = NDArray[np.float32]


class Taken(NamedTuple):
    """What a rule makes of recorded rows.

    Attributes:
        exits: (rows,) at which exit each row leaves, counted from 0.
        logits: (rows, labels) those it leaves with; of tokens (rows, tokens, labels).
        heads: (rows,) whose head gave them; by most rules that of the exit.
        labels: (rows,) the label where the rule chose it by other means than the largest
            logit; else -1.
    """

    exits: NDArray[np.intp]
    logits: NDArray[np.float32]
    heads: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def deciding(self) -> NDArray[np.float32]:
        """Logits whose largest is the answer's label, also where the rule chose the label."""
        chosen = np.flatnonzero(self.labels >= 0)
        if not len(chosen):
            return self.logits
        logits = self.logits.copy()
        top = np.nextafter(logits[chosen].max(axis=-1), np.float32(np.inf))
        logits[chosen, self.labels[chosen]] = top
        return logits


def answers_taken(
    recording: Recording,
    rule: Rule,
    traits: Traits,
    temperatures: tuple[float, ...],
    counted: NDArray[np.bool_] | None = None,
    uncertainty: NDArray[np.float32] | None = None,
) -> Taken:
    """Return where the rule lets each row leave, and with what.

    Args:
        recording: logits at just these exits.
        rule: checked against the model.
        traits: of the model, with these exits.
        temperatures: one per exit.
        counted: (rows, tokens) of token classification: which tokens count.
        uncertainty: (exits, rows) the errors that the heads predict for themselves, for rule
            learned.

    Raises:
        InvalidRule: rule learned without predicted errors.
    """
    said = _heads(recording, rule, counted, uncertainty)
    num_rows = recording.shape[1]
    exits = np.full(num_rows, len(recording) - 1)
    logits = recording[-1].copy()
    heads, labels = exits.copy(), np.full(num_rows, -1)
    inside = np.ones(num_rows, np.bool_)
    for index, decision in enumerate(_decisions(said, rule, traits, temperatures)):
        leaves = inside & (decision.reasons != Reason.STAYS)
        inside &= ~leaves
        exits[leaves] = heads[leaves] = index
        logits[leaves] = recording[index][leaves]
        if prediction := decision.prediction:
            logits[leaves], heads[leaves] = prediction.logits[leaves], prediction.exit_index[leaves]
            labels[leaves] = prediction.label[leaves]
    return Taken(exits, logits, heads, labels)


def signals(
    recording: Recording,
    rule: Rule,
    traits: Traits,
    temperatures: tuple[float, ...],
    counted: NDArray[np.bool_] | None = None,
    uncertainty: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return (exits, rows) the signal that the rule compares; NaN where it has none.

    Args and errors are those of `answers_taken`.
    """
    heads = _heads(recording, rule, counted, uncertainty)
    return np.stack([d.signals for d in _decisions(heads, rule, traits, temperatures)])


def _heads(
    recording: Recording,
    rule: Rule,
    counted: NDArray[np.bool_] | None,
    uncertainty: NDArray[np.float32] | None,
) -> list[HeadOutput]:
    """Return what each exit's head gave."""
    if isinstance(rule, LearnedRule) and uncertainty is None:
        raise InvalidRule(
            "rule learned cannot be tried on a recording without predicted errors; rules that "
            "read logits can"
        )
    errors = [None] * len(recording) if uncertainty is None else uncertainty
    return [
        HeadOutput(logits, error, counted) for logits, error in zip(recording, errors, strict=True)
    ]


def _decisions(
    heads: Sequence[HeadOutput], rule: Rule, traits: Traits, temperatures: tuple[float, ...]
) -> Iterator[Decision]:
    """Yield what is judged of all rows at each exit, as if none had left before."""
    state = RuleState.of([compile_rule(rule, traits, temperatures)] * len(heads[0].logits))
    for index, head in enumerate(heads):
        yield judge(state, head, index, len(heads), temperatures[index])
