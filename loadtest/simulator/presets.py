"""Simulated devices by name, or from a check on a real one."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

from loadtest.simulator.device import Device
from loadtest.simulator.exit_mixes import InvalidSimulation
from loadtest.simulator.timing import Curve
from serve.classifier.options import BATCH_LIMITS
from serve.engine.cost_model import SegmentCost

_MEASURED = "measured:"
_US = 1e-6


class ShapeTimes(BaseModel):
    """One shape of batch, each time a median of runs that came after a first one."""

    rows: PositiveInt
    tokens: PositiveInt  # of each row, padding included
    # The same model as one graph with one head, without the host's time below.
    whole_ms: PositiveFloat
    segment_ms: PositiveFloat  # one layer in the middle without its head, launches included
    head_ms: NonNegativeFloat  # the head of one exit
    # The host's time per run in which the device waits: inputs, the round trip for the logits,
    # judging, choosing.
    host_us: NonNegativeFloat


class DeviceTimes(BaseModel):
    """A device, one model on it, and its times: what the GPU check writes as `device_times`.

    Two shapes are enough; more, up to the largest batch that is served, show where launches end.
    """

    device: str  # its name
    layers: PositiveInt  # of the model; an exit after each
    shapes: list[ShapeTimes]  # of different sizes

    @field_validator("shapes")
    @classmethod
    def _differ(cls, shapes: list[ShapeTimes]) -> list[ShapeTimes]:
        if len({shape.rows * shape.tokens for shape in shapes}) < 2:
            raise ValueError("expected batches of two sizes or more")
        return shapes


def h100(num_segments: int) -> Device:
    """Return an H100 with BERT-base in half precision: estimates, no measurement.

    A segment with its head is about 30 launches of 4.5 us; its work takes 0.05 us per token and
    41 us besides. The whole model as one graph is 13 launches a layer. The host takes 60 to 105 us
    per run; the microsecond for each row is the engine's own, measured on a CPU.
    """
    segment = Curve.launch_bound(135 * _US, 41 * _US, 0.05 * _US)
    n = num_segments
    whole = Curve.launch_bound(n * 58.3 * _US, n * 20 * _US, n * 0.05 * _US)
    times = 80 * _US, 20 * _US, 0.002 * _US
    return Device("h100", (segment,) * n, *times, whole, 1 * _US, BATCH_LIMITS["cuda"])


def small_gpu_like(num_segments: int) -> Device:
    """Return a GPU of a fifth of the speed, where a launch costs as much as 700 tokens."""
    segment = SegmentCost(fixed_s=100 * _US, per_token_s=0.25 * _US)
    n = num_segments
    whole = SegmentCost(n * 58.3 * _US, n * 0.25 * _US)
    times = 80 * _US, 20 * _US, 0.002 * _US
    return Device("small-gpu-like", (segment,) * n, *times, whole, 1 * _US, BATCH_LIMITS["cuda"])


def cpu_like(num_segments: int) -> Device:
    """Return a device where time is nearly proportional to tokens: int8 on two cores."""
    cost = SegmentCost(fixed_s=100e-6, per_token_s=25e-6, per_token_pair_s=0.01e-6)
    return Device("cpu-like", (cost,) * num_segments, 60e-6, 10e-6, 0.2e-6)


PRESETS: Mapping[str, Callable[[int], Device]] = {
    "h100": h100,
    "small-gpu-like": small_gpu_like,
    "cpu-like": cpu_like,
}


def read_device(text: str, num_segments: int) -> Device:
    """Read a preset's name, or `measured:` and the path of what the GPU check has written.

    Raises:
        InvalidSimulation: neither of these.
    """
    if text in PRESETS:
        return PRESETS[text](num_segments)
    if not text.startswith(_MEASURED):
        raise InvalidSimulation(f"cost {text!r}: expected {', '.join(PRESETS)} or measured:FILE")
    path = Path(text.removeprefix(_MEASURED))
    try:
        device = _measured(path.stem, json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InvalidSimulation(f"cost {text!r}: expected a readable file: {error}") from error
    except ValueError as error:
        raise InvalidSimulation(
            f"cost: {path} is not what loadtest.bench.gpu writes: {error}"
        ) from error
    if len(device) != num_segments:
        raise InvalidSimulation(
            f"cost: {path} has {len(device)} segments; say --layers {len(device)}"
        )
    return device


def _measured(name: str, document: Any) -> Device:
    """Return a device with measured times; joining costs what it costs on the h100 preset."""
    found = document.get("device_times", document) if isinstance(document, dict) else document
    times = DeviceTimes.model_validate(found)
    sizes = [(each.rows * each.tokens, each) for each in times.shapes]
    segment = Curve.through([(n, (s.segment_ms + s.head_ms) / 1000) for n, s in sizes])
    whole = Curve.through([(n, s.whole_ms / 1000) for n, s in sizes])
    host = Curve.through([(s.rows, s.host_us * _US) for _, s in sizes])
    few, many = host.tokens[0], host.tokens[-1]
    per_row_s = (host.times_s[-1] - host.times_s[0]) / (many - few) if many > few else 0.0
    near = h100(times.layers)
    return replace(
        near,
        name=name,
        segments=(segment,) * times.layers,
        whole=whole,
        host_s=max(0.0, host.times_s[0] - per_row_s * few),
        host_per_row_s=max(0.0, per_row_s),
    )
