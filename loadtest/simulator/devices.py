"""Simulated devices: how long a batch takes on one, by name or from a check on a real one."""

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from loadtest.simulator.traffic import InvalidSimulation
from serve.classifier.options import BATCH_LIMITS
from serve.engine.cost_model import SegmentCost, fitted
from serve.engine.scheduler import BatchLimits
from serve.engine.warm_up import on_gpu

_MEASURED = "measured:"
_US = 1e-6


class Timing(Protocol):
    """Time as a function of rows and tokens; `SegmentCost` is one."""

    def seconds(self, num_rows: int, num_tokens: int) -> float:
        """Return the time of a batch of so many rows, padded to so many tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Curve:
    """Straight lines between points, by all tokens of a batch; the last line goes on.

    Attributes:
        tokens: of each point, ascending; two points at least.
        times_s: of each point. Before the first one the time stays the same.
    """

    tokens: tuple[float, ...]
    times_s: tuple[float, ...]

    @classmethod
    def launch_bound(cls, launches_s: float, base_s: float, per_token_s: float) -> "Curve":
        """Return the larger of the time of launches and of the work, which grows with tokens."""
        corner = (launches_s - base_s) / per_token_s
        return cls((corner, 2 * corner), (launches_s, launches_s + corner * per_token_s))

    def seconds(self, num_rows: int, num_tokens: int) -> float:
        """Return the time of a batch of so many rows, padded to so many tokens."""
        at = num_rows * num_tokens
        if at <= self.tokens[0]:
            return self.times_s[0]
        i = min(bisect_right(self.tokens, at), len(self.tokens) - 1) - 1
        (left, right), (low, high) = self.tokens[i : i + 2], self.times_s[i : i + 2]
        return low + (high - low) * (at - left) / (right - left)


@dataclass(frozen=True, slots=True)
class Device:
    """A device, which runs one batch at a time, and the host beside it.

    Attributes:
        name: of the device.
        segments: their times, first to last, each with its exit's head.
        whole: the time of the whole model as one graph with one head; None for the sum of the
            segments.
        host_s: the host's time per run in which the device waits: choosing, judging, the round
            trip for logits.
        host_per_row_s: what each row adds to `host_s`.
        join_s: of copying batches together, whatever their size, and for each token.
        limits: on a batch, as the server has them there.
    """

    name: str
    segments: tuple[Timing, ...]
    whole: Timing | None = None
    host_s: float = 0.0
    host_per_row_s: float = 0.0
    join_s: tuple[float, float] = (0.0, 0.0)
    limits: BatchLimits = BATCH_LIMITS["cpu"]

    def run_s(self, index: int, rows: int, tokens: int) -> float:
        """Return the time of one segment with the host's part."""
        return self._host_s(rows) + self.segments[index].seconds(rows, tokens)

    def whole_s(self, rows: int, tokens: int) -> float:
        """Return the time of the whole model in one go, with one round trip for the logits."""
        parts = (self.whole,) if self.whole else self.segments
        return self._host_s(rows) + sum(part.seconds(rows, tokens) for part in parts)

    def lone_s(self, tokens: int) -> float:
        """Return the time of a request that is alone and runs through all segments."""
        return sum(self.run_s(index, 1, tokens) for index in range(len(self.segments)))

    def learned(self, seconds: Callable[[int, int], float]) -> SegmentCost:
        """Return what the engine's warm-up would learn of what takes so long here."""
        shapes = on_gpu(self.limits).shapes
        return fitted([(rows, tokens, seconds(rows, tokens)) for rows, tokens in shapes])

    def _host_s(self, rows: int) -> float:
        return self.host_s + self.host_per_row_s * rows


def h100(num: int) -> Device:
    """Return an H100 with BERT-base in half precision: estimates, no measurement.

    A segment with its head is about 30 launches of 4.5 us; its work takes 0.05 us per token and
    41 us besides. The whole model as one graph is 13 launches a layer. The host takes 60 to 105 us
    per run; the microsecond for each row is the engine's own, measured on a CPU.
    """
    segment = Curve.launch_bound(135 * _US, 41 * _US, 0.05 * _US)
    whole = Curve.launch_bound(num * 58.3 * _US, num * 20 * _US, num * 0.05 * _US)
    return _on_gpu("h100", (segment,) * num, whole)


def small_gpu_like(num: int) -> Device:
    """Return a GPU of a fifth of the speed, where a launch costs as much as 700 tokens."""
    segment = SegmentCost(fixed_s=100 * _US, per_token_s=0.25 * _US)
    whole = SegmentCost(num * 58.3 * _US, num * 0.25 * _US)
    return _on_gpu("small-gpu-like", (segment,) * num, whole)


def cpu_like(num: int) -> Device:
    """Return a device where time is nearly proportional to tokens: int8 on two cores."""
    cost = SegmentCost(fixed_s=100e-6, per_token_s=25e-6, per_token_pair_s=0.01e-6)
    return Device("cpu-like", (cost,) * num, host_s=60 * _US, join_s=(10 * _US, 0.2 * _US))


PRESETS: Mapping[str, Callable[[int], Device]] = {
    "h100": h100,
    "small-gpu-like": small_gpu_like,
    "cpu-like": cpu_like,
}


def read_device(text: str, num_segments: int) -> Device:
    """Read a preset's name, or `measured:` and the path of what the GPU check has written.

    Raises:
        InvalidSimulation: neither of these, or the model measured has another number of exits.
    """
    if text in PRESETS:
        return PRESETS[text](num_segments)
    if not text.startswith(_MEASURED):
        raise InvalidSimulation(f"cost {text!r}: expected {', '.join(PRESETS)} or measured:FILE")
    path = Path(text.removeprefix(_MEASURED))
    try:
        times = json.loads(path.read_text(encoding="utf-8"))["times"]
        device, num_exits = _measured(path.stem, times), len(times[0]["until_ms"])
    except OSError as error:
        raise InvalidSimulation(f"cost {text!r}: expected a readable file: {error}") from error
    except (ValueError, LookupError, TypeError) as error:
        what = "not what loadtest.bench.gpu writes where it has measured the whole model"
        raise InvalidSimulation(f"cost: {path} is {what}: {error!r}") from error
    if num_exits != num_segments:
        raise InvalidSimulation(f"cost: {path} has {num_exits} exits; say --layers {num_exits}")
    return device


def _measured(name: str, times: Sequence[Mapping[str, Any]]) -> Device:
    """Return a device with measured times, which have the host's part in them."""
    lines = sorted(times, key=lambda line: line["rows"] * line["tokens"])
    tokens = tuple(float(line["rows"] * line["tokens"]) for line in lines)
    num = len(lines[0]["until_ms"])
    segment = Curve(tokens, tuple(line["until_ms"][-1] / num / 1e3 for line in lines))
    wholes = (min(line["whole_ms"], line["captured_ms"] or line["whole_ms"]) for line in lines)
    whole = Curve(tokens, tuple(ms / 1e3 for ms in wholes))
    return _on_gpu(name, (segment,) * num, whole, host=(0.0, 0.0))


def _on_gpu(
    name: str,
    segments: tuple[Timing, ...],
    whole: Timing,
    host: tuple[float, float] = (80 * _US, 1 * _US),
) -> Device:
    return Device(name, segments, whole, *host, (20 * _US, 0.002 * _US), BATCH_LIMITS["cuda"])
