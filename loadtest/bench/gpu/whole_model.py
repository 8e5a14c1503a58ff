"""The whole model as one graph on a device: what leaving early has to beat."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from loadtest.bench.gpu.variant import opener
from loadtest.bench.inputs import Inputs
from loadtest.bench.whole_model import Answer
from serve.bundle.manifest import ATTENTION_LENGTHS, INPUT_IDS, LENGTHS, LOGITS, SHARES
from serve.bundle.manifest import TOKEN_TYPE_IDS as TYPES
from serve.runtime import cuda_provider as cuda
from serve.runtime.placement import Device
from serve.runtime.step_inputs import attention_lengths, shares

_ELEMENTS: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}
# The legacy stream cannot be captured: a captured session has a stream of its own.
_OF_THE_STREAM = ("user_compute_stream", "do_copy_in_default_stream")


def whole_model(graph: Path, device: Device) -> Answer:
    """Return a function that runs batches of any shape, and returns (rows, labels) logits."""
    session = opener(device)(graph)
    return lambda inputs: session.run([LOGITS], _fed(session, inputs, device))[0]


def captured(graph: Path, inputs: Inputs) -> Answer:
    """Return a function that runs batches of one shape, without padding, as a CUDA graph.

    Its first call captures the graph.
    """
    provider = cuda.provider_options(None)
    provider = {name: value for name, value in provider.items() if name not in _OF_THE_STREAM}
    providers = [(cuda.PROVIDER, provider | {"enable_cuda_graph": "1"})]
    session = ort.InferenceSession(
        graph, cuda.session_options(), providers=providers, enable_fallback=0
    )
    # The addresses of inputs and outputs are part of the captured graph.
    binding, fed = session.io_binding(), _fed(session, inputs, "cuda")
    values = {name: ort.OrtValue.ortvalue_from_numpy(each, "cuda") for name, each in fed.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    size = (len(inputs.input_ids), session.get_outputs()[0].shape[-1])
    logits = ort.OrtValue.ortvalue_from_shape_and_type(size, np.float32, "cuda")
    binding.bind_ortvalue_output(LOGITS, logits)

    def run(texts: Inputs) -> NDArray[np.float32]:
        for name, array in texts._asdict().items():
            if name in values:
                values[name].update_inplace(array)
        session.run_with_iobinding(binding)
        found: NDArray[np.float32] = logits.numpy()
        return found

    return run


def _fed(session: ort.InferenceSession, inputs: Inputs, device: Device) -> dict[str, NDArray[Any]]:
    """Return what the graph reads, in its types."""
    ids, mask, types = inputs
    lengths = mask.sum(axis=1, dtype=np.int32)
    every: dict[str, NDArray[Any]] = {
        INPUT_IDS: ids,
        TYPES: types,
        LENGTHS: lengths,
        ATTENTION_LENGTHS: attention_lengths(lengths, mask.shape[1], device),
        SHARES: shares(mask, lengths),
    }
    ports = session.get_inputs()
    return {p.name: np.ascontiguousarray(every[p.name], _ELEMENTS[p.type]) for p in ports}
