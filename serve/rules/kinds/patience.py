"""Agreement of consecutive exits."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from serve.errors import InvalidRule
from serve.rules.criterion import Criterion, FreshColumns, Judgement, RowsAtExit, fit_width
from serve.rules.fields import Patience
from serve.rules.head_output import HeadOutput
from serve.rules.multipart import decisions
from serve.rules.reason import Reason
from serve.rules.rule import Rule
from serve.rules.traits import Task, Traits

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
