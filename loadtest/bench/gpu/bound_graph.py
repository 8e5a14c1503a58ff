"""One ONNX graph on the device, with inputs and outputs at fixed places."""

from time import perf_counter
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from loadtest.bench.gpu.device_variant import DeviceVariant
from loadtest.bench.inputs import Inputs, Shape, random_inputs
from serve.bundle.manifest import (
    ATTENTION_LENGTHS,
    HIDDEN,
    INPUT_IDS,
    LENGTHS,
    LOGITS,
    SHARES,
    TOKEN_TYPE_IDS,
)
from serve.runtime.device_memory import Buffer
from serve.runtime.ort_session import QUEUED, OpenSession, run_queued
from serve.runtime.step_inputs import StepInputs, attention_lengths

_ELEMENTS: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


def full_rows(shape: Shape, width: int, vocabulary: int, device: str) -> dict[str, NDArray[Any]]:
    """Return every input that a graph may read, for rows without padding."""
    lengths = np.full(shape.rows, shape.tokens, np.int32)
    hidden = np.random.default_rng(0).standard_normal((*shape, width))
    inputs = random_inputs(shape, vocabulary)
    return {
        INPUT_IDS: inputs.input_ids,
        TOKEN_TYPE_IDS: inputs.token_type_ids,
        LENGTHS: lengths,
        ATTENTION_LENGTHS: attention_lengths(lengths, shape.tokens, device),
        SHARES: np.full((*shape, 1), 1 / shape.tokens),
        HIDDEN: hidden,
    }


class BoundGraph:
    """A graph for one shape of batch.

    Attributes:
        inputs: by name, on the device.
        outputs: by name, on the device.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        variant: DeviceVariant,
        shape: Shape,
    ) -> None:
        """Bind everything; `variant` is the one whose graph it is."""
        device = variant.place.device
        arrays = full_rows(shape, variant.bundle.manifest.width, variant.vocabulary, device)
        self._session = session
        self._binding = session.io_binding()
        self.inputs: dict[str, ort.OrtValue] = {}
        self.outputs: dict[str, ort.OrtValue] = {}
        for port in session.get_inputs():
            array = np.ascontiguousarray(arrays[port.name], _ELEMENTS[port.type])
            value = ort.OrtValue.ortvalue_from_numpy(array, device)
            self.inputs[port.name] = value
            self._binding.bind_ortvalue_input(port.name, value)
        sizes = {"rows": shape.rows, "tokens": shape.tokens}
        for port in session.get_outputs():
            size = [sizes.get(axis, axis) for axis in port.shape]
            value = ort.OrtValue.ortvalue_from_shape_and_type(size, _ELEMENTS[port.type], device)
            self.outputs[port.name] = value
            self._binding.bind_ortvalue_output(port.name, value)

    def run(self, options: ort.RunOptions | None = None) -> None:
        """Run, and wait for the end unless the options say otherwise."""
        self._session.run_with_iobinding(self._binding, options)

    def answer(self, inputs: Inputs, options: ort.RunOptions | None = None) -> NDArray[np.float32]:
        """Upload texts, run, and return the logits on the host."""
        for name, array in inputs._asdict().items():
            if name in self.inputs:
                self.inputs[name].update_inplace(array)
        self.run(options)
        logits: NDArray[np.float32] = self.outputs[LOGITS].numpy()
        return logits

    def average_s(self, times: int = 8) -> float:
        """Return the seconds per run of several that are queued at once."""
        began = perf_counter()
        for _ in range(times - 1):
            self.run(QUEUED)
        self.run()
        return (perf_counter() - began) / times


class WholeModel:
    """The model as one graph, with copies as `serve.runtime.cuda_runner` makes them."""

    def __init__(self, variant: DeviceVariant, session: ort.InferenceSession) -> None:
        self._session = session
        self._names = [port.name for port in session.get_inputs()]
        element = next((_ELEMENTS[p.type] for p in session.get_inputs() if p.name == SHARES), None)
        read, self._device = self._names, variant.place.device
        self._inputs = StepInputs(variant.memory, read, element or np.float16)
        self._buffer = Buffer(variant.memory)
        self._labels = len(variant.bundle.manifest.labels)

    def run(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return (rows, labels) logits on the host."""
        named = {INPUT_IDS: inputs.input_ids, TOKEN_TYPE_IDS: inputs.token_type_ids}
        texts = {name: array for name, array in named.items() if name in self._names}
        self._inputs.load(inputs.attention_mask, texts)
        binding = self._session.io_binding()
        for name in self._names:
            self._inputs.bind(binding, name)
        shape = [len(inputs.input_ids), self._labels]
        num_bytes = 4 * shape[0] * shape[1]
        self._buffer.reserve(num_bytes)
        binding.bind_output(LOGITS, self._device, 0, np.float32, shape, self._buffer.address)
        run_queued(self._session, binding)
        return self._buffer.download(num_bytes).view(np.float32).reshape(shape).copy()


def opened(variant: DeviceVariant, index: int, head: bool = False) -> ort.InferenceSession:
    """Return a session of a segment's layers or head beside those of the runner."""
    open_session: OpenSession = variant.place.opener()
    bundle = variant.bundle
    paths = (bundle.head_paths if head else bundle.segment_paths)(variant.precision)
    return open_session(paths[index])
