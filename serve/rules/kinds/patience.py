"""Consecutive exits that agree, or that are all confident."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from serve.errors import InvalidRule
from serve.rules.criterion import (
    Criterion,
    FreshColumns,
    HeadOutput,
    Judgement,
    Prediction,
    Reason,
    RowsAtExit,
    fit_width,
)
from serve.rules.kinds.threshold import NormalizedEntropy
from serve.rules.rule import PartwiseRule, Patience, Rule, Shares
from serve.rules.signals import decisions, logits_of, normalized_entropy, probabilities
from serve.rules.traits import Task, Traits, logits_shape

_NO_STREAK = np.array(0, np.int32)


class PatienceRule(Rule):
    """Leave when `patience` consecutive exits have agreed with the exit before them.

    PABEE (Zhou et al. 2020): patience t needs t + 1 identical predictions in a row, so the
    earliest exit is the (t + 1)-th. A regression agrees when its value has moved by less than
    `tolerance` since the exit before; a slow drift is agreement.
    """

    rule: Literal["patience"] = "patience"
    patience: Patience = Field(
        description="How often in a row an exit must agree with the one before; 1 or more."
    )
    tolerance: float | None = Field(
        default=None,
        gt=0,
        description="For regressions alone: values less than this apart agree.",
    )

    def check(self, traits: Traits) -> None:
        super().check(traits)
        if traits.task == "regression" and self.tolerance is None:
            raise InvalidRule(
                "patience on a regression needs tolerance: how far apart two values may be that "
                "agree"
            )
        if traits.task != "regression" and self.tolerance is not None:
            raise InvalidRule(
                "tolerance is for regressions; this model gives labels, which agree or do not: "
                "leave tolerance out"
            )

    def surely_leave(self, traits: Traits) -> tuple[bool | None, ...]:
        return tuple(False if i < self.patience else None for i in range(len(traits.exits)))

    def criterion(self, traits: Traits) -> Criterion:
        return Agreement(traits.task)

    def columns(self, traits: Traits) -> FreshColumns:
        columns = {"patience": np.array(self.patience, np.int32), "streak": _NO_STREAK}
        if traits.task == "regression":
            columns["value"] = np.array(np.nan, np.float32)
            columns["tolerance"] = np.array(self.tolerance, np.float32)
        elif traits.task == "single_label":
            columns["label"] = np.array(-1, np.int32)
        else:
            parts = 0 if traits.task == "token" else len(traits.labels)
            columns["labels"] = np.full(parts, -1, np.int32)
        return columns


@dataclass(frozen=True)
class Agreement(Criterion):
    """Count how often in a row an exit's answer is that of the exit before.

    Attributes:
        task: the model's task.
    """

    task: Task

    reason: ClassVar[Reason] = Reason.PATIENCE
    counts: ClassVar[bool] = True

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        if self.task == "regression":
            agrees = _near_value(rows, head)
        elif self.task == "single_label":
            agrees = _same_label(rows, head)
        else:
            agrees = _same_parts(rows, head, self.task)
        streak = np.where(agrees, rows["streak"] + 1, 0)
        rows["streak"] = streak
        return Judgement(streak >= rows["patience"], streak.astype(np.float32))


def _same_label(rows: RowsAtExit, head: HeadOutput) -> NDArray[np.bool_]:
    label = decisions("single_label", head.logits)
    agrees: NDArray[np.bool_] = (label == rows["label"]) & (label >= 0)
    rows["label"] = label
    return agrees


def _same_parts(rows: RowsAtExit, head: HeadOutput, task: Task) -> NDArray[np.bool_]:
    """Tell whether all labels, or all tokens that count, are decided as at the exit before."""
    now = decisions(task, head.logits)
    same: NDArray[np.bool_] = (now == fit_width(rows["labels"], now.shape[1], -1)) & (now >= 0)
    rows["labels"] = now
    counted = np.ones_like(same) if head.counted is None else head.counted
    agrees: NDArray[np.bool_] = np.logical_and.reduce(same | ~counted, axis=1)
    return agrees & counted.any(axis=1)


def _near_value(rows: RowsAtExit, head: HeadOutput) -> NDArray[np.bool_]:
    """Tell whether the value is less than the tolerance from that of the exit before."""
    value = head.logits[:, 0]
    value = np.where(np.isfinite(value), value, np.float32(np.nan))
    near: NDArray[np.bool_] = abs(value - rows["value"]) < rows["tolerance"]
    rows["value"] = value
    return near


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
