"""A threshold for each label."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from serve.errors import InvalidRule
from serve.rules.criterion import Criterion, FreshColumns, Judgement, RowsAtExit
from serve.rules.fields import Share
from serve.rules.head_output import HeadOutput
from serve.rules.rule import Rule, beyond_signal
from serve.rules.signals import softmax
from serve.rules.traits import Task, Traits, listed


class ClassesRule(Rule):
    """Leave early only with certain labels, each when its probability exceeds its own threshold.

    Early-exit monoBERT (Xin et al. 2020). There a label need not be the most probable one; here
    it must be, or a row would leave with a label that was not listed. From thresholds of 1/2 on
    that is the same.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("single_label",)

    rule: Literal["classes"] = "classes"
    thresholds: Annotated[dict[str, Share], Field(min_length=1)] = Field(
        description="Thresholds by label, strict: leave when the label is the answer and its "
        "probability is above. Rows with other labels go on."
    )

    def __hash__(self) -> int:
        return hash((self.min_layer, self.max_layer, frozenset(self.thresholds.items())))

    def check(self, traits: Traits) -> None:
        super().check(traits)
        unknown = [label for label in self.thresholds if label not in traits.labels]
        if unknown:
            raise InvalidRule(f"no label {unknown[0]!r}; the model has {listed(traits.labels)}")

    def surely_leave(self, traits: Traits) -> tuple[bool | None, ...]:
        # A label that is not listed never leaves, as with threshold 1.
        thresholds = (self.thresholds.get(label, 1.0) for label in traits.labels)
        found = {beyond_signal(threshold, 1.0, 1 / len(traits.labels)) for threshold in thresholds}
        return (found.pop() if len(found) == 1 else None,) * len(traits.exits)

    def criterion(self, traits: Traits) -> Criterion:
        return Classes()

    def columns(self, traits: Traits) -> FreshColumns:
        thresholds = [self.thresholds.get(label, np.inf) for label in traits.labels]
        return {"label_thresholds": np.array(thresholds, np.float32)}


@dataclass(frozen=True)
class Classes(Criterion):
    """The best label's probability against that label's threshold."""

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        p, label = softmax(head.logits), head.logits.argmax(axis=-1)
        each_row = np.arange(len(label))
        signal = p[each_row, label]
        return Judgement(signal > rows["label_thresholds"][each_row, label], signal)
