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
from serve.rules.kinds.confidence import ConfidenceRule
from serve.rules.kinds.threshold import LearnedRule
from serve.rules.rule import Rule
from serve.rules.small import SmallRule
from serve.rules.table import table_confidence
from serve.rules.traits import Traits

# (layers, rows, labels); for token classification (layers, rows, tokens, labels). Those of a table
# and of a small model, if there are any, come first; see `Traits.layers`.
Logits: TypeAlias = NDArray[np.float32]


class Taken(NamedTuple):
    """What a rule makes of recorded rows.

    Attributes:
        exits: (rows,) where each row leaves: its place in `Traits.layers`, counted from 0.
        logits: (rows, labels) those it leaves with; of tokens (rows, tokens, labels).
        heads: (rows,) the place whose logits they are; by most rules that where it leaves.
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


def unjudged_before(logits: Logits, num_before: int) -> Logits:
    """Return what exits said with places before them where none of the texts was judged."""
    missing = np.full((num_before, *logits.shape[1:]), np.nan, logits.dtype)
    return np.concatenate([missing, logits])


@dataclass(frozen=True, eq=False)
class Recording:
    """What every exit of a model said of some rows, and its table, if it has one.

    Attributes:
        traits: the model's traits, with just these exits.
        temperatures: one per exit.
        logits: logits of each of `Traits.layers`; those of padding mean nothing, and NaN are those
            of a table or a small model that has not judged the row.
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
        chosen, before = list(exits), self.traits.num_before
        places = [*range(before), *(before + i for i in chosen)]
        scores = self.traits.score_temperatures
        return replace(
            self,
            traits=replace(
                self.traits,
                exits=tuple(self.traits.exits[i] for i in chosen),
                score_temperatures=scores and tuple(scores[i] for i in places),
            ),
            temperatures=tuple(self.temperatures[i] for i in chosen),
            logits=self.logits[places],
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
        num_rows, before = self.logits.shape[1], self.traits.num_before
        exits = np.full(num_rows, len(self.logits) - 1)
        logits = self.logits[-1].copy()
        heads, labels = exits.copy(), np.full(num_rows, -1)
        early = self.left_before(rule)
        inside = early < 0
        exits[~inside] = heads[~inside] = early[~inside]
        logits[~inside] = self.logits[early, np.arange(num_rows)][~inside]
        for index, decision in enumerate(self._decisions(rule), start=before):
            leaves = inside & (decision.reasons != Reason.STAYS)
            inside &= ~leaves
            exits[leaves] = heads[leaves] = index
            logits[leaves] = self.logits[index][leaves]
            if said := decision.prediction:
                logits[leaves] = said.logits[leaves]
                heads[leaves] = said.exit_index[leaves] + before
                labels[leaves] = said.label[leaves]
        return Taken(exits, logits, heads, labels)

    def signals(self, rule: Rule) -> NDArray[np.float32]:
        """Return (exits, rows) the signal that a rule compares; NaN where it has none.

        Errors are those of `taken`.
        """
        return np.stack([decision.signals for decision in self._decisions(rule)])

    def left_before(self, rule: Rule) -> NDArray[np.intp]:
        """Return (rows,) the place before the first layer where a row leaves; -1 if it goes on."""
        compiled, traits = self.compiled(rule), self.traits
        left = np.full(self.logits.shape[1], -1, np.intp)
        if compiled.small is not None:
            left = self._left_small(compiled.small)
        if compiled.table is not None and traits.table_temperature is not None:
            sure = table_confidence(traits.task, self.logits[0], traits.table_temperature)
            left[sure >= np.float32(compiled.table)] = 0
        return left

    def _left_small(self, own: SmallRule) -> NDArray[np.intp]:
        """Return (rows,) the place of the small model's exit where a row leaves; else -1."""
        small = self.traits.small
        assert small is not None
        first = self.traits.num_before - len(small.exits)
        logits = self.logits[first : self.traits.num_before]
        if np.isnan(logits).all():
            raise InvalidRule("small: what the small model says of these texts is not known")
        said = Recording(small.traits(self.traits), small.temperatures, logits)
        rule = ConfidenceRule.model_validate(dict(own))
        exits = said.taken(rule).exits
        sure = said.signals(rule)[exits, np.arange(len(exits))] >= np.float32(own.threshold)
        return np.where(sure, first + exits, -1)

    def _decisions(self, rule: Rule) -> Iterator[Decision]:
        """Yield what is judged of all rows at each exit, as if none had left before."""
        if isinstance(rule, LearnedRule) and self.uncertainty is None:
            raise InvalidRule(
                "rule learned cannot be tried on a recording without predicted errors; rules that "
                "read logits can"
            )
        state = RuleState.of([self.compiled(rule)] * self.logits.shape[1])
        of_exits = self.logits[self.traits.num_before :]
        errors = [None] * len(of_exits) if self.uncertainty is None else self.uncertainty
        for index, (logits, error) in enumerate(zip(of_exits, errors, strict=True)):
            head = HeadOutput(logits, error, self.counted)
            yield judge(state, head, index, len(of_exits), self.temperatures[index])
