"""Sessions that capture their runs as CUDA graphs, one for each shape of batch."""

from functools import partial
from pathlib import Path

import onnxruntime as ort

from loadtest.bench.gpu.device_variant import Place
from loadtest.bench.inputs import Shape
from serve.runtime import cuda_provider as cuda
from serve.runtime.io_binding import OpenSession

# The legacy stream cannot be captured: these sessions have a stream of their own.
_OF_THE_STREAM = ("user_compute_stream", "do_copy_in_default_stream")


def capturing(place: Place) -> OpenSession:
    """Return a function that opens an ONNX file for capture on CUDA; `place` names kernels."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    provider = cuda.provider_options(None, place.attention_kernels)
    provider = {name: value for name, value in provider.items() if name not in _OF_THE_STREAM}
    return partial(_open, options=options, provider=provider | {"enable_cuda_graph": "1"})


def _open(
    path: Path, options: ort.SessionOptions, provider: dict[str, str]
) -> ort.InferenceSession:
    providers = [(cuda.PROVIDER, provider)]
    return ort.InferenceSession(path, options, providers=providers, enable_fallback=0)


def replay_of(shape: Shape) -> ort.RunOptions:
    """Return options under which a shape's first run is captured and later ones replay it."""
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(1000 * shape.rows + shape.tokens))
    return options
