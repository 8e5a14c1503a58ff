"""Criteria that compare one signal of this exit with a threshold."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from serve.rules.criterion import Criterion, Judgement, RowsAtExit
from serve.rules.head_output import HeadOutput
from serve.rules.multipart import distributions, reduced
from serve.rules.traits import Task

# From this distance of two logits on, the second label's probability is 0 in float32.
WIDEST_GAP = 120.0
# Larger than the float32 rounding error of the signals.
GAP_SLACK = 1e-5


@dataclass(frozen=True)
class Threshold(Criterion):
    """Leave when the signal of this exit lies beyond the row's threshold.

    Attributes:
        read: returns (rows,) or (rows, parts) signals of logits (..., labels).
        task: of the model.
    """

    read: Callable[..., NDArray[np.float32]]
    task: Task

    sure_is_high: ClassVar[bool] = False

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        signal = self.signal(rows, head)
        return Judgement(self.beyond(signal, rows.at_exit("threshold")), shown(signal, head))

    def signal(self, rows: RowsAtExit, head: HeadOutput) -> NDArray[np.float32]:
        """Return (rows,) signals; those of several parts are reduced to one as the rule says."""
        if self.task == "single_label":
            return self.read_at(rows, head.logits)
        signals = self.read_at(rows, distributions(self.task, head.logits))
        return reduced(signals, head.counted, rows["quantile"], self.sure_is_high)

    def read_at(self, rows: RowsAtExit, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the signals of logits at this exit."""
        return self.read(logits)

    def beyond(self, signal: NDArray[Any], threshold: NDArray[Any]) -> NDArray[np.bool_]:
        """Return (rows,) whether each signal is beyond its threshold."""
        return signal < threshold


def shown(signal: NDArray[np.float32], head: HeadOutput) -> NDArray[np.float32]:
    """Return the signals as answers report them: 0 for rows in which no token counts."""
    if head.counted is None:
        return signal
    return np.where(head.counted.any(axis=1), signal, np.float32(0))
