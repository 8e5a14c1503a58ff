"""A bundle's segments on a GPU: hidden states stay there, the heads' outputs come to the host."""

from collections.abc import Mapping, Sequence
from copy import copy
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
from serve.engine.runner import Hidden, Ids, StepOutput
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
    and one copy back, for which the host waits. All are queued on one stream.

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
    ) -> StepOutput:
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
    ) -> StepOutput:
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
    ) -> StepOutput:
        """Run the segments between two active exits on the same rows, and the last one's head."""
        stop = self._runs[until].stop
        for body in self._bodies[self._runs[index].start : stop]:
            binding = body.binding(self._inputs, hidden)
            binding.bind_output(HIDDEN_OUT, self.device)
            (hidden,) = run_queued(body.session, binding)
        head = self._heads[stop - 1]
        binding = head.binding(self._inputs, hidden)
        self._answers.bind(binding, shape)
        run_queued(head.session, binding)
        is_last = stop == len(self._bodies)
        return StepOutput(None if is_last else hidden, **self._answers.read())


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


class _Answers:
    """What heads give: side by side in one buffer, so that one copy brings it to the host."""

    def __init__(self, memory: DeviceMemory, manifest: Manifest) -> None:
        self._device = memory.device
        self._buffer = Buffer(memory)
        self._labels = len(manifest.labels)
        self._per_token, self._learned = manifest.task == "token", manifest.learned
        self._shapes: Mapping[str, tuple[int, ...]] = {}

    def bind(self, binding: ort.IOBinding, shape: tuple[int, ...]) -> None:
        """Bind a head's outputs for a batch of (rows, tokens)."""
        places = shape if self._per_token else shape[:1]
        self._shapes = {LOGITS: (*places, self._labels)}
        if self._learned:
            self._shapes |= {UNCERTAINTY: shape[:1]}
        self._buffer.reserve(self._num_bytes)
        address = self._buffer.address
        for name, size in self._shapes.items():
            binding.bind_output(name, self._device, 0, np.float32, list(size), address)
            address += 4 * int(np.prod(size))

    def read(self) -> dict[str, NDArray[np.float32]]:
        """Return copies of the outputs by name, once the run has ended."""
        values = self._buffer.download(self._num_bytes).view(np.float32).copy()
        cuts = np.cumsum([np.prod(size) for size in self._shapes.values()])[:-1]
        parts = zip(self._shapes.items(), np.split(values, cuts), strict=True)
        return {name: part.reshape(size) for (name, size), part in parts}

    @property
    def _num_bytes(self) -> int:
        return 4 * sum(int(np.prod(size)) for size in self._shapes.values())
