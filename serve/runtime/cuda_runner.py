"""A bundle's segments on a GPU: hidden states stay there, the heads' outputs come to the host."""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.bundle.loader import Bundle
from serve.bundle.manifest import (
    HIDDEN,
    HIDDEN_OUT,
    INPUT_IDS,
    LOGITS,
    TOKEN_TYPE_IDS,
    UNCERTAINTY,
    Manifest,
    Precision,
)
from serve.engine.runner import Hidden, Ids
from serve.runtime.cpu_runner import active_segments, runs_between
from serve.runtime.device_memory import Buffer, DeviceMemory
from serve.runtime.ort_session import OpenSession, run_queued
from serve.runtime.row_taker import PLACES, RowTaker, places_of
from serve.runtime.step_inputs import StepInputs

_ELEMENTS: dict[str, type[np.floating[Any]]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
}


class CudaRunner:
    """A `serve.engine.runner.ModelRunner` whose hidden states are `OrtValue`s on the device.

    A step is one copy to the device, the segments of one run and the head of the exit at its end,
    and one copy back. All are queued on one stream, and the host waits when it reads the logits.

    Attributes:
        precision: the variant.
        device: where segments run and hidden states lie, as ONNX Runtime calls it.
    """

    def __init__(
        self, bundle: Bundle, precision: Precision, memory: DeviceMemory, open_session: OpenSession
    ) -> None:
        """Load every segment's layers, and the heads of the active exits, of a variant for GPUs.

        The host's own memory lets the same code be tried where there is no GPU.
        """
        self.precision = precision
        self.device = memory.device
        manifest = bundle.manifest
        active, heads = active_segments(manifest, precision), bundle.head_paths(precision)
        self._bodies = [_Graph(open_session(path)) for path in bundle.segment_paths(precision)]
        self._heads = {index: _Graph(open_session(heads[index])) for index in active}
        self._runs = runs_between(active)
        graphs = [*self._bodies, *self._heads.values()]
        element = self._bodies[0].element
        read = {name for graph in graphs for name in graph.inputs}
        self._takes_types = TOKEN_TYPE_IDS in read
        self._inputs = StepInputs(memory, read, element)
        self._taker = RowTaker(open_session, memory, element, manifest.width)
        self._answers = _Answers(memory, manifest)

    def presenting(self, active: Sequence[int]) -> "CudaRunner":
        """Return the same sessions with exits after these segments only; see `runs_between`."""
        chain = copy(self)
        chain._runs = runs_between(active)
        return chain

    def __len__(self) -> int:
        return len(self._runs)

    def start(
        self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids, until: int = 0
    ) -> "_QueuedOutput":
        texts = {INPUT_IDS: input_ids}
        if self._takes_types:
            texts[TOKEN_TYPE_IDS] = token_type_ids
        self._inputs.load(attention_mask, texts)
        return self._run(0, until, None, attention_mask.shape)

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        until: int | None = None,
    ) -> "_QueuedOutput":
        places = places_of(hidden, keep, attention_mask.shape[1])
        self._inputs.load(attention_mask, {} if places is None else {PLACES: places})
        if places is not None:
            hidden = self._taker.take(hidden, self._inputs)
        until = index if until is None else until
        return self._run(index, until, hidden, attention_mask.shape)

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        return self._taker.join(parts)

    def _run(
        self, index: int, until: int, hidden: Hidden | None, shape: tuple[int, ...]
    ) -> "_QueuedOutput":
        """Run the segments between two active exits on the same rows, and the last one's head."""
        stop = self._runs[until].stop
        for body in self._bodies[self._runs[index].start : stop]:
            binding = body.binding(self._inputs, hidden)
            binding.bind_output(HIDDEN_OUT, self.device)
            (hidden,) = run_queued(body.session, binding)
        head = self._heads[stop - 1]
        binding = head.binding(self._inputs, hidden)
        answer = self._answers.bind(binding, shape)
        run_queued(head.session, binding)
        answer.queue()
        is_last = stop == len(self._bodies)
        return _QueuedOutput(None if is_last else hidden, answer)


class _Graph:
    """A session, and what it reads.

    Attributes:
        session: a session of layers or of a head.
        inputs: names.
        element: type of the first output.
    """

    def __init__(self, session: ort.InferenceSession) -> None:
        self.session = session
        self.inputs = [value.name for value in session.get_inputs()]
        self.element = _ELEMENTS[session.get_outputs()[0].type]

    def binding(self, inputs: StepInputs, hidden: Hidden | None) -> ort.IOBinding:
        """Return a binding of the inputs; it is used once, because outputs are views into it."""
        binding = self.session.io_binding()
        for name in self.inputs:
            if name == HIDDEN:
                binding.bind_ortvalue_input(HIDDEN, hidden)
            else:
                inputs.bind(binding, name)
        return binding


class _QueuedOutput:
    """A `serve.engine.runner.QueuedOutput`."""

    def __init__(self, hidden: Hidden, answer: "_Answer") -> None:
        self.hidden = hidden
        self._answer = answer

    @property
    def logits(self) -> NDArray[np.float32]:
        return self._answer.values[LOGITS]

    @property
    def uncertainty(self) -> NDArray[np.float32] | None:
        return self._answer.values.get(UNCERTAINTY)


class _Answers:
    """What heads give. Each run has a buffer of its own until it is read."""

    def __init__(self, memory: DeviceMemory, manifest: Manifest) -> None:
        self._memory = memory
        self._free: list[Buffer] = []
        self._labels = len(manifest.labels)
        self._per_token, self._learned = manifest.task == "token", manifest.learned

    def bind(self, binding: ort.IOBinding, shape: tuple[int, ...]) -> "_Answer":
        """Bind a head's outputs for a batch of (rows, tokens), side by side in one buffer."""
        places = shape if self._per_token else shape[:1]
        shapes = {LOGITS: (*places, self._labels)}
        if self._learned:
            shapes[UNCERTAINTY] = shape[:1]
        answer = _Answer(
            shapes, self._free.pop() if self._free else Buffer(self._memory), self._free
        )
        address = answer.reserve()
        for name, size in shapes.items():
            binding.bind_output(name, self._memory.device, 0, np.float32, list(size), address)
            address += 4 * math.prod(size)
        return answer


class _Answer:
    """What one run's head gives; one copy brings it to the host."""

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], buffer: Buffer, free: list[Buffer]
    ) -> None:
        self._shapes, self._buffer, self._free = shapes, buffer, free
        self._num_bytes = 4 * sum(map(math.prod, shapes.values()))

    def reserve(self) -> int:
        """Make room for it; return where that is on the device."""
        self._buffer.reserve(self._num_bytes)
        return self._buffer.address

    def queue(self) -> None:
        """Queue the copy to the host."""
        self._buffer.download(self._num_bytes)

    @cached_property
    def values(self) -> Mapping[str, NDArray[np.float32]]:
        """Copies of the outputs by name, once the run has ended."""
        values = self._buffer.read(self._num_bytes).view(np.float32).copy()
        self._free.append(self._buffer)
        found, first = {}, 0
        for name, size in self._shapes.items():
            found[name] = values[first : first + math.prod(size)].reshape(size)
            first += math.prod(size)
        return found
