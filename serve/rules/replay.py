"""Rules tried on what every exit said of some texts, without running the model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.errors import InvalidRule
from serve.rules.compiled_rule import CompiledRule, compile_rule
from serve.rules.criterion import HeadOutput, Reason
from serve.rules.judge import Decision, RuleState, judge
from serve.rules.kinds.threshold import LearnedRule
from serve.rules.rule import Rule
from serve.rules.traits import Traits

# (exits, rows, labels); for token classification (exits, rows, tokens, labels).
Logits: TypeAlias = NDArray[np.float32]


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


def _at(traits: Traits, chosen: Sequence[int]) -> Traits:
    scores = traits.score_temperatures
    return replace(
        traits,
        exits=tuple(traits.exits[i] for i in chosen),
        score_temperatures=scores and tuple(scores[i] for i in chosen),
    )


@dataclass(frozen=True, eq=False)
class Recording:
    """What every exit of a model said of some rows.

    Attributes:
        traits: the model's traits, with just these exits.
        temperatures: one per exit.
        logits: logits of every exit; those of padding mean nothing.
        counted: (rows, tokens) of taggers: which tokens exit rules look at.
        uncertainty: (exits, rows) the errors that the heads predict for themselves; None without.
    """

    traits: Traits
    temperatures: tuple[float, ...]
    logits: Logits
    counted: NDArray[np.bool_] | None = None
    uncertainty: NDArray[np.float32] | None = None

    def at(self, exits: Sequence[int]) -> Self:
        """Return what some of the exits said, counted from 0, as if there were no others."""
        chosen = list(exits)
        return replace(
            self,
            traits=_at(self.traits, chosen),
            temperatures=tuple(self.temperatures[i] for i in chosen),
            logits=self.logits[chosen],
            uncertainty=None if self.uncertainty is None else self.uncertainty[chosen],
        )

    def compiled(self, rule: Rule) -> CompiledRule:
        """Return a rule, checked against the model and worked out for it."""
        return compile_rule(rule, self.traits, self.temperatures)

    def taken(self, rule: Rule) -> Taken:
        """Return where a rule lets each row leave, and with what.

        Raises:
            InvalidRule: the model cannot follow it, or rule learned without predicted errors.
        """
        num_rows = self.logits.shape[1]
        exits = np.full(num_rows, len(self.logits) - 1)
        logits = self.logits[-1].copy()
        heads, labels = exits.copy(), np.full(num_rows, -1)
        inside = np.ones(num_rows, np.bool_)
        for index, decision in enumerate(self._decisions(rule)):
            leaves = inside & (decision.reasons != Reason.STAYS)
            inside &= ~leaves
            exits[leaves] = heads[leaves] = index
            logits[leaves] = self.logits[index][leaves]
            if said := decision.prediction:
                logits[leaves], heads[leaves] = said.logits[leaves], said.exit_index[leaves]
                labels[leaves] = said.label[leaves]
        return Taken(exits, logits, heads, labels)

    def signals(self, rule: Rule) -> NDArray[np.float32]:
        """Return (exits, rows) the signal that a rule compares; NaN where it has none.

        Errors are those of `taken`.
        """
        return np.stack([decision.signals for decision in self._decisions(rule)])

    def _decisions(self, rule: Rule) -> Iterator[Decision]:
        """Yield what is judged of all rows at each exit, as if none had left before."""
        if isinstance(rule, LearnedRule) and self.uncertainty is None:
            raise InvalidRule(
                "rule learned cannot be tried on a recording without predicted errors; rules that "
                "read logits can"
            )
        state = RuleState.of([self.compiled(rule)] * self.logits.shape[1])
        errors = [None] * len(self.logits) if self.uncertainty is None else self.uncertainty
        for index, (logits, error) in enumerate(zip(self.logits, errors, strict=True)):
            head = HeadOutput(logits, error, self.counted)
            yield judge(state, head, index, len(self.logits), self.temperatures[index])
