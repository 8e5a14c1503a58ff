"""A simulated device and its times; it runs one batch at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from loadtest.simulator.timing import Timing, learned
from serve.classifier.options import BATCH_LIMITS
from serve.engine.cost_model import SegmentCost
from serve.engine.scheduler import BatchLimits
from serve.engine.warm_up import on_gpu


@dataclass(frozen=True, slots=True)
class Device:
    """A device and the host beside it.

    Attributes:
        name: of the device.
        segments: their times, first to last, each with its exit's head.
        host_s: the host's time per run in which the device waits: choosing, judging, the round
            trip for logits.
        join_fixed_s: copying batches together, whatever their size.
        join_per_token_s: for each token copied.
        whole: the time of the whole model as one graph with one head; None for the sum of the
            segments.
        host_per_row_s: what each row adds to `host_s`.
        limits: on a batch, as the server has them there.
    """

    name: str
    segments: tuple[Timing, ...]
    host_s: float
    join_fixed_s: float
    join_per_token_s: float
    whole: Timing | None = None
    host_per_row_s: float = 0.0
    limits: BatchLimits = BATCH_LIMITS["cpu"]

    def __len__(self) -> int:
        return len(self.segments)

    def run_s(self, index: int, rows: int, tokens: int) -> float:
        """Return the time of one segment with the host's part."""
        return self._host_s(rows) + self.segments[index].seconds(rows, tokens)

    def whole_s(self, rows: int, tokens: int) -> float:
        """Return the time of the whole model in one go, with one round trip for the logits."""
        if self.whole:
            return self._host_s(rows) + self.whole.seconds(rows, tokens)
        return self._host_s(rows) + sum(each.seconds(rows, tokens) for each in self.segments)

    def lone_s(self, tokens: int) -> float:
        """Return the time of a request that is alone and runs through all segments."""
        return sum(self.run_s(index, 1, tokens) for index in range(len(self)))

    def join_s(self, rows: int, tokens: int) -> float:
        """Return the time of copying the hidden states of a batch together."""
        return self.join_fixed_s + self.join_per_token_s * rows * tokens

    def costs(self) -> list[SegmentCost]:
        """Return what the engine learns of each segment, the host's part included."""
        return [learned(partial(self.run_s, index), self._shapes) for index in range(len(self))]

    def whole_cost(self) -> SegmentCost:
        """Return what a server of the whole model would learn in the same way."""
        return learned(self.whole_s, self._shapes)

    @property
    def _shapes(self) -> Sequence[tuple[int, int]]:
        return on_gpu(self.limits).shapes

    def _host_s(self, rows: int) -> float:
        return self.host_s + self.host_per_row_s * rows
