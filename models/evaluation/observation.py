"""Everything that one model said of one data file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from models.data.examples import Example
from models.evaluation.answers import AnswerIds, Answers
from models.evaluation.costs import Costs
from models.evaluation.predictions import Predictions
from models.evaluation.row_statistics import Metric, Statistics, metric_of
from serve.bundle.manifest import Precision, TrainedFor
from serve.policy.ladder import Data, Ladder
from serve.policy.limits import Limits
from serve.policy.profile import RuleOrTarget
from serve.rules.compiled_rule import compile_rule
from serve.rules.replay import Taken, answers_taken, signals
from serve.rules.rule import Rule
from serve.rules.traits import Traits


@dataclass(frozen=True)
class Subject:
    """A model in one precision, as the report names it.

    Attributes:
        name: told apart from the other models of the report.
        origin: what it was read from, such as `bundle` or `DeeBERT checkpoint`.
        precision: what it computes in.
        trained_for: the method and the rule that its heads were trained for, if they are known.
        profiles: rules and targets that its policy names.
        limits: of the policy.
        ladder: certified rules of just this variant.
        num_parameters: None where the model's modules are not at hand.
        unknown: why a cost is not known, by its unit.
    """

    name: str
    origin: str
    precision: Precision
    trained_for: TrainedFor = field(default_factory=TrainedFor)
    profiles: Mapping[str, RuleOrTarget] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    ladder: Ladder | None = None
    num_parameters: int | None = None
    unknown: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """One pass of a data file over all exits of a model, and what it cost.

    Attributes:
        subject: the model.
        data: the file.
        examples: its rows.
        predictions: what every exit said of them.
        temperatures: one per exit.
        num_tokens: (rows,) special tokens included.
        costs: by unit.
    """

    subject: Subject
    data: Data
    examples: Sequence[Example]
    predictions: Predictions
    temperatures: tuple[float, ...]
    num_tokens: NDArray[np.intp]
    costs: Costs

    @property
    def traits(self) -> Traits:
        """The model as its exit rules see it."""
        return self.predictions.traits

    @property
    def num_rows(self) -> int:
        """How many texts there are."""
        return len(self.examples)

    @cached_property
    def metric(self) -> Metric:
        """The task's main metric."""
        return metric_of(self.predictions)

    @cached_property
    def answers(self) -> Answers | None:
        """What every exit answers; None for a regression."""
        return None if self.traits.task == "regression" else self._answer_ids.all()

    @cached_property
    def statistics(self) -> NDArray[np.float64]:
        """(exits, rows, sums) of the main metric."""
        logits = self.predictions.logits
        return np.stack([self.metric.statistics(self.predictions, each) for each in logits])

    def first_heard(self, rule: Rule) -> int:
        """Return the first exit that a rule asks."""
        return compile_rule(rule, self.traits, self.temperatures).first_heard

    def signals(self, rule: Rule) -> NDArray[np.float32]:
        """Return (exits, rows) the signal of a rule."""
        return signals(
            self.predictions.logits,
            rule,
            self.traits,
            self.temperatures,
            self.predictions.in_text,
            self.predictions.uncertainty,
        )

    def taken(self, rule: Rule) -> Taken:
        """Return where a rule lets each row leave, and with what."""
        return answers_taken(
            self.predictions.logits,
            rule,
            self.traits,
            self.temperatures,
            self.predictions.in_text,
            self.predictions.uncertainty,
        )

    def statistics_of(self, taken: Taken) -> Statistics:
        """Return (rows, sums) of the main metric for the answers that rows leave with."""
        if self._by_the_exits(taken):
            statistics: Statistics = self.statistics[taken.exits, np.arange(self.num_rows)]
            return statistics
        return self.metric.statistics(self.predictions, taken.deciding)

    def disagrees(self, taken: Taken) -> NDArray[np.bool_] | None:
        """Return (rows,) whether rows leave with another answer than full depth's."""
        if self.answers is None:
            return None
        if self._by_the_exits(taken):
            own = self.answers.at_exits[taken.exits, np.arange(self.num_rows)]
        else:
            own = self._answer_ids.of(taken.deciding)
        different: NDArray[np.bool_] = own != self.answers.full
        return different

    def _by_the_exits(self, taken: Taken) -> bool:
        """Whether every row leaves with what the exit itself says, not with a vote or a mean."""
        own = self.predictions.logits[taken.exits, np.arange(self.num_rows)]
        return np.array_equal(own, taken.deciding, equal_nan=True)

    @cached_property
    def _answer_ids(self) -> AnswerIds:
        return AnswerIds(self.predictions)
