"""A bundle's variant on the device, and the reference it is compared with."""

from dataclasses import dataclass
from functools import partial

import onnxruntime as ort
from tokenizers import Tokenizer

from loadtest.bench.engine_driver import model_shape
from serve.bundle.loader import Bundle
from serve.bundle.manifest import FOR_GPUS, Precision
from serve.engine.executor import ModelShape
from serve.runtime import cuda_provider as cuda
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner
from serve.runtime.hardware import choose_precision
from serve.runtime.io_binding import OpenSession
from serve.runtime.ort_session import open_session, session_options
from serve.runtime.placement import Device, device_memory

NUM_THREADS = 2


@dataclass(frozen=True)
class Place:
    """Where sessions run."""

    device: Device  # `cuda`, or `cpu` to try the same code
    # See `serve.runtime.cuda_provider.open_session`.
    attention_kernels: int = cuda.ATTENTION_KERNELS

    def opener(self, options: ort.SessionOptions | None = None) -> OpenSession:
        """Return a function that opens an ONNX file there; `options` default to the server's."""
        options = options or session_options(NUM_THREADS)
        if self.device == "cpu":
            return partial(open_session, options=options)
        return partial(
            cuda.open_session,
            options=options,
            memory_bytes=None,
            attention_kernels=self.attention_kernels,
        )


@dataclass(frozen=True)
class DeviceVariant:
    """One variant on the device."""

    bundle: Bundle
    precision: Precision
    place: Place
    chain: CudaRunner
    vocabulary: int  # number of token ids

    @property
    def max_tokens(self) -> int:
        """Longest input."""
        return self.bundle.manifest.max_tokens

    @property
    def shape(self) -> ModelShape:
        """What the engine must know of the model."""
        return model_shape(self.bundle.manifest)


def variants(bundle: Bundle) -> list[Precision]:
    """Return every variant that a GPU may run."""
    return [precision for precision in FOR_GPUS if precision in bundle.manifest.variants]


def load(bundle: Bundle, precision: Precision, place: Place) -> DeviceVariant:
    """Return a variant on the device."""
    vocabulary = Tokenizer.from_file(str(bundle.tokenizer_path)).get_vocab_size()
    chain = CudaRunner(bundle, precision, device_memory(place.device), place.opener())
    return DeviceVariant(bundle, precision, place, chain, vocabulary)


def reference(bundle: Bundle) -> CpuRunner:
    """Return the fp32 segments on the CPU provider.

    Raises:
        DeviceUnavailable: the bundle has none.
    """
    return CpuRunner(bundle, choose_precision("fp32", bundle), NUM_THREADS)
