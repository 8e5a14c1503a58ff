"""A GPU that sleeps: what our own code costs there, without one.

The real runner for GPUs queues its runs on sessions that compute nothing. Each takes the time that
it was measured to take, outside Python's lock, as ONNX Runtime does. Everything else is real.
"""

import ctypes
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from loadtest.bench.full_load import LONG, SHORT, Line, rates
from loadtest.bench.gpu.variant import DeviceVariant
from loadtest.bench.inputs import Inputs
from loadtest.bench.random_model import ModelSettings, build
from serve.bundle.manifest import HIDDEN, INPUT_IDS
from serve.classifier.options import BATCH_LIMITS
from serve.runtime.cuda_runner import CudaRunner
from serve.runtime.device_memory import Block, HostMemory
from serve.runtime.row_taker import PLACES

_LAYERS, _WIDTH = 12, 16
_SET_TIMER_SLACK = 29  # of prctl; by default a thread sleeps 50 us too long


class Cost(NamedTuple):
    """Of a kind of run, in microseconds.

    Attributes:
        issue: of the host, until everything is queued.
        fixed: of the device, however small the batch.
        per_token: of the device, padding included.
    """

    issue: float
    fixed: float
    per_token: float = 0.0


class DeviceTimes(NamedTuple):
    """What was measured on a GPU with one model.

    Attributes:
        layer: of one layer.
        head: of an exit's head.
        take: of choosing rows of hidden states.
        whole: of the whole model as one graph, its head included.
        copy: of queueing a copy.
        wait: of learning that a copy has ended.
    """

    layer: Cost
    head: Cost
    take: Cost
    whole: Cost
    copy: float
    wait: float

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a device's file: the fields of this class as JSON, with others beside them."""
        said = json.loads(file.read_text())
        costs = {name: Cost(**said[name]) for name in ("layer", "head", "take", "whole")}
        return cls(**costs, copy=said["copy"], wait=said["wait"])


class SleepingDevice(HostMemory):
    """One stream of work, and the memory beside it: a `DeviceMemory`.

    The host's time of queueing is slept when the host waits for the device next: a sleep has its
    own costs, so one is better than ten.
    """

    device = "cuda"

    def __init__(self, times: DeviceTimes) -> None:
        self.times = times
        self._owed_s = 0.0  # of the host, not slept yet
        self._free_s = 0.0  # when all that is queued will have been done
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1)  # of this thread, and of those it starts

    def queue(self, cost: Cost, num_tokens: int) -> None:
        """Queue a run over so many tokens."""
        begins_s = self._now_s
        self._owed_s += cost.issue / 1e6
        busy_s = (cost.fixed + cost.per_token * num_tokens) / 1e6
        self._free_s = max(max(self._free_s, begins_s) + busy_s, self._now_s)

    def upload(self, block: Block, num_bytes: int) -> None:
        self._copy(block)

    def download(self, block: Block, num_bytes: int) -> None:
        self._copy(block)

    def wait(self, block: Block) -> None:
        ended_s = getattr(block.owned, "ended_s", 0.0)
        self._owed_s += self.times.wait / 1e6
        until_s = max(ended_s, self._now_s)
        self._owed_s = 0.0
        time.sleep(max(0.0, until_s - time.perf_counter()))

    def allocate(self, num_bytes: int) -> Block:
        block = super().allocate(num_bytes)
        return Block(block.host, block.address, _Owned(block.owned))

    def _copy(self, block: Block) -> None:
        self._owed_s += self.times.copy / 1e6
        self._free_s = max(self._free_s, self._now_s)
        block.owned.ended_s = self._free_s

    @property
    def _now_s(self) -> float:
        return time.perf_counter() + self._owed_s


def measure(times: DeviceTimes, folder: Path) -> Iterator[Line]:
    """Yield rows per second of a model of twelve layers, with all exits, three and one.

    Its weights are never used, so the bundle that is written to the folder has small ones.
    """
    settings = ModelSettings("sleeping", _LAYERS, _WIDTH, 2, 1000, 512, True, "mean")
    bundle, device = build(settings, ("fp16",), folder), SleepingDevice(times)
    chain = CudaRunner(bundle, "fp16", device, lambda path: SleepingSession(path, device, _WIDTH))
    variant = DeviceVariant(bundle, "fp16", "cuda", chain, settings.vocabulary, settings.max_tokens)
    models = [variant.presenting(number) for number in (_LAYERS, 3, 1)]
    limits = BATCH_LIMITS["cuda"]
    block = device.allocate(1)

    def whole(inputs: Inputs) -> NDArray[np.float32]:
        device.queue(times.whole, inputs.input_ids.size)
        device.download(block, 1)
        device.wait(block)
        return np.zeros((len(inputs.input_ids), 2), np.float32)

    for mean in (SHORT, LONG):
        yield from rates(models, whole, settings.vocabulary, settings.max_tokens, limits, mean)


@dataclass
class _Owned:
    there: Any
    ended_s: float = 0.0


class SleepingSession:
    """Stands for an ONNX Runtime session on the device."""

    def __init__(self, path: Path, device: SleepingDevice, width: int) -> None:
        real = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        self._inputs, self._outputs = real.get_inputs(), real.get_outputs()
        self._device, self._width = device, width
        times = device.times
        is_head, is_take = ".head." in path.name, path.name.startswith("take.")
        self._cost = times.head if is_head else times.take if is_take else times.layer

    def get_inputs(self) -> Any:
        return self._inputs

    def get_outputs(self) -> Any:
        return self._outputs

    def io_binding(self) -> "_Binding":
        return _Binding(self._width)

    def run_with_iobinding(self, binding: "_Binding", options: object) -> None:
        self._device.queue(self._cost, binding.num_tokens)


@dataclass
class _Binding:
    width: int
    shapes: dict[str, Any] = field(default_factory=dict)

    def bind_input(self, name: str, *others: Any) -> None:
        self.shapes[name] = others[3]

    def bind_ortvalue_input(self, name: str, value: "_Value") -> None:
        self.shapes[name] = value.shape()

    def bind_output(self, name: str, *others: Any) -> None:
        pass

    def clear_binding_inputs(self) -> None:
        pass

    def get_outputs(self) -> list["_Value"]:
        return [_Value((*self._size, self.width))]

    @property
    def num_tokens(self) -> int:
        return int(np.prod(self._size))

    @property
    def _size(self) -> Any:
        """(rows, tokens) of what is computed."""
        for name in (PLACES, INPUT_IDS):
            if name in self.shapes:
                return self.shapes[name]
        return self.shapes[HIDDEN][:2]


class _Value(NamedTuple):
    size: tuple[int, ...]

    def shape(self) -> tuple[int, ...]:
        return self.size

    def data_ptr(self) -> int:
        return 0
