"""The error that an exit head has learned to predict for itself."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from serve.rules.criterion import Criterion, FreshColumns, Judgement, RowsAtExit
from serve.rules.fields import Shares
from serve.rules.head_output import HeadOutput
from serve.rules.rule import Rule
from serve.rules.traits import Traits


class LearnedRule(Rule):
    """Leave when the exit head's own predicted error is strictly below the threshold.

    BERxiT (Xin et al. 2021), "learning to exit". The prediction is of being wrong, as in its
    code; the paper speaks of the opposite, certainty. The last exit is not asked.
    """

    rule: Literal["learned"] = "learned"
    threshold: Shares = Field(
        description="From 0 to 1, strict: leave when the predicted error is below it. "
        "One number, or a list with one per exit."
    )

    @classmethod
    def unsuited(cls, traits: Traits) -> str | None:
        if not traits.learned:
            return "needs exit heads that have learned to predict their own error"
        return None

    def criterion(self, traits: Traits) -> Criterion:
        return Learned()

    def columns(self, traits: Traits) -> FreshColumns:
        return {"threshold": np.array(self.threshold, np.float32)}


@dataclass(frozen=True)
class Learned(Criterion):
    """A low predicted error is a sure answer."""

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        signal = head.uncertainty
        if signal is None:
            signal = np.full(len(head.logits), np.nan, np.float32)
        return Judgement(signal < rows.at_exit("threshold"), signal)
