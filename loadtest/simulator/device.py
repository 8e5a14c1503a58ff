"""A simulated device and its segment times; it runs one batch at a time."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.simulator.errors import InvalidSimulation
from serve.engine.cost_model import SegmentCost

# The server's names for a segment's costs, in the order of SegmentCost, and their units.
_SERVED = {"fixed_ms": 1e-3, "per_token_us": 1e-6, "per_token_pair_ns": 1e-9}


@dataclass(frozen=True, slots=True)
class Device:
    """A device and the host beside it."""

    name: str
    segments: tuple[SegmentCost, ...]  # their costs, first to last
    # The host's time per batch and segment: choosing, judging, the round trip for logits.
    host_s: float
    join_fixed_s: float  # copying batches together, whatever their size
    join_per_token_s: float  # for each token copied

    def __len__(self) -> int:
        return len(self.segments)

    def whole_s(self, rows: int, tokens: int) -> float:
        """Return the time of all segments in one go, with one round trip for the logits."""
        return self.host_s + sum(cost.seconds(rows, tokens) for cost in self.segments)

    def lone_s(self, tokens: int) -> float:
        """Return the time of a request that is alone and runs through all segments."""
        return sum(self.host_s + cost.seconds(1, tokens) for cost in self.segments)

    def join_s(self, rows: int, tokens: int) -> float:
        """Return the time of copying the hidden states of a batch together."""
        return self.join_fixed_s + self.join_per_token_s * rows * tokens

    def cost(self, shares: Sequence[float]) -> SegmentCost:
        """Return the whole model's cost; `shares` of the tokens run in each segment."""
        fixed = len(self) * self.host_s + sum(cost.fixed_s for cost in self.segments)
        pairs = list(zip(shares, self.segments, strict=True))
        return SegmentCost(
            fixed,
            sum(share * cost.per_token_s for share, cost in pairs),
            sum(share * cost.per_token_pair_s for share, cost in pairs),
        )


def gpu_like(num_segments: int) -> Device:
    """Return a data centre's GPU, where a launch costs as much as 2,000 tokens.

    A layer as wide as BERT-base is 14.2 MFLOP per token (12 x 768 x 768 multiplications and as
    many additions), in half precision at 250 TFLOP/s 0.06 us. A dozen kernels, the round trip for
    the logits and the host's work between two segments take 130 us, whatever the batch.
    """
    cost = SegmentCost(fixed_s=100e-6, per_token_s=0.06e-6)
    return Device("gpu-like", (cost,) * num_segments, 30e-6, 20e-6, 0.002e-6)


def small_gpu_like(num_segments: int) -> Device:
    """Return a GPU of a quarter of the speed: a launch costs as much as 500 tokens."""
    cost = SegmentCost(fixed_s=100e-6, per_token_s=0.25e-6)
    return Device("small-gpu-like", (cost,) * num_segments, 30e-6, 20e-6, 0.002e-6)


def cpu_like(num_segments: int) -> Device:
    """Return a device where time is nearly proportional to tokens: int8 on two cores."""
    cost = SegmentCost(fixed_s=100e-6, per_token_s=25e-6, per_token_pair_s=0.01e-6)
    return Device("cpu-like", (cost,) * num_segments, 60e-6, 10e-6, 0.2e-6)


PRESETS: Mapping[str, Callable[[int], Device]] = {
    "gpu-like": gpu_like,
    "small-gpu-like": small_gpu_like,
    "cpu-like": cpu_like,
}


def read_device(text: str, num_segments: int) -> Device:
    """Read a preset's name, or the path of an answer of `GET /v1/models/{m}`.

    Raises:
        InvalidSimulation: neither of these.
    """
    if text in PRESETS:
        return PRESETS[text](num_segments)
    path = Path(text)
    try:
        segments = _segments(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InvalidSimulation(
            f"cost {text!r}: expected {', '.join(PRESETS)} or a readable file: {error}"
        ) from error
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidSimulation(
            f"cost: {path} is no JSON that has `costs` with {', '.join(_SERVED)} per segment; "
            f"save what GET /v1/models/{{m}} answers: {error}"
        ) from error
    if len(segments) != num_segments:
        raise InvalidSimulation(
            f"cost: {path} has {len(segments)} segments; say --layers {len(segments)}"
        )
    # The answer has no costs of joining and of the host; those of the nearer preset stand in.
    near = gpu_like if segments[0].per_token_s < 5e-6 else cpu_like
    preset = near(num_segments)
    return Device(path.stem, segments, preset.host_s, preset.join_fixed_s, preset.join_per_token_s)


def _segments(document: Any) -> tuple[SegmentCost, ...]:
    found = tuple(
        SegmentCost(*(float(cost[field]) * unit_s for field, unit_s in _SERVED.items()))
        for cost in document["costs"]
    )
    if not found or any(not 0 <= value < math.inf for cost in found for value in cost):
        raise ValueError("every cost must be a number from 0")
    return found
