"""Consecutive confident exits, and the mean of their answers."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from serve.rules.criterion import Criterion, FreshColumns, Judgement, RowsAtExit, fit_width
from serve.rules.fields import Patience, Shares
from serve.rules.head_output import HeadOutput, Prediction
from serve.rules.kinds.threshold import NormalizedEntropy
from serve.rules.multipart import logits_of, probabilities
from serve.rules.reason import Reason
from serve.rules.rule import PartwiseRule
from serve.rules.signals import normalized_entropy
from serve.rules.traits import Traits, logits_shape


class ConfidentPatienceRule(PartwiseRule):
    """Leave when `patience` consecutive exits were confident, whatever their labels.

    PCEE-BERT (Zhang et al. 2022): confident is a normalized entropy strictly below the
    threshold. Unlike PABEE's, patience 1 may leave at the first exit.
    """

    rule: Literal["confident_patience"] = "confident_patience"
    threshold: Shares = Field(
        description="From 0 to 1, strict: an exit is confident when entropy / ln(labels) is "
        "below it. One number, or a list with one per exit."
    )
    patience: Patience = Field(description="How many exits in a row must be confident; 1 or more.")
    ensemble: Literal["none", "run", "all"] = Field(
        default="none",
        description="What answers: the exit itself; the mean probability over the confident run "
        "and the exit just before it; or that over all exits so far.",
    )

    def extremes(self, traits: Traits) -> tuple[float, float]:
        return 0.0, 1.0

    def surely_leave(self, traits: Traits) -> tuple[bool | None, ...]:
        confident = (*[False] * (self.patience - 1), *super().surely_leave(traits))
        runs = (confident[i : i + self.patience] for i in range(len(traits.exits)))
        return tuple(False if False in run else all(run) or None for run in runs)

    def criterion(self, traits: Traits) -> Criterion:
        return ConfidentRun(normalized_entropy, traits.task, self.ensemble)

    def columns(self, traits: Traits) -> FreshColumns:
        columns = {
            **super().columns(traits),
            "patience": np.array(self.patience, np.int32),
            "streak": np.array(0, np.int32),
        }
        if self.ensemble != "none":
            columns["total"] = np.zeros(logits_shape(traits), np.float32)
            columns["heads"] = np.array(0, np.int32)
        return columns


@dataclass(frozen=True)
class ConfidentRun(NormalizedEntropy):
    """Count how many exits in a row were confident.

    Attributes:
        ensemble: whose mean probability answers.
    """

    ensemble: Literal["none", "run", "all"]

    reason: ClassVar[Reason] = Reason.PATIENCE
    counts: ClassVar[bool] = True

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        signal = self.signal(rows, head)
        confident = signal < rows.at_exit("threshold")
        streak = np.where(confident, rows["streak"] + 1, 0)
        rows["streak"] = streak
        prediction = None
        if self.ensemble != "none":
            self._add_up(rows, head, ~np.isnan(signal), confident)
            prediction = self._mean(rows, head)
        return Judgement(streak >= rows["patience"], streak.astype(np.float32), prediction)

    def _add_up(
        self,
        rows: RowsAtExit,
        head: HeadOutput,
        known: NDArray[np.bool_],
        confident: NDArray[np.bool_],
    ) -> None:
        """Add the exit's probabilities to those that the answer will be the mean of.

        An exit that was not confident begins a new run, of which it is a part, as in PCEE-BERT's
        code. An exit that gave no number is part of no run.
        """
        p = probabilities(self.task, head.logits)
        total, heads = fit_width(rows["total"], p.shape[1]), rows["heads"]
        if self.ensemble == "run":
            total = np.where(_each(confident, p), total, np.float32(0))
            heads = np.where(confident, heads, 0)
        rows["total"] = total + np.where(_each(known, p), p, np.float32(0))
        rows["heads"] = heads + known

    def _mean(self, rows: RowsAtExit, head: HeadOutput) -> Prediction:
        prediction, heads = Prediction.at(head.logits, rows.exit_index), rows["heads"]
        mixed = np.flatnonzero(heads > 0)
        total = rows["total"][mixed]
        mean = (total / _each(heads[mixed], total)).astype(np.float32)
        prediction.logits[mixed] = logits_of(self.task, mean)
        return prediction


def _each(values: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """Return (rows,) values with as many axes as an array of rows."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))
