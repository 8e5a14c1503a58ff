"""A bundle's variant for GPUs on the device, and the reference it is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import onnxruntime as ort
from tokenizers import Tokenizer

from loadtest.bench.inputs import Shape
from serve.bundle.loader import Bundle
from serve.bundle.manifest import FOR_GPUS, Precision
from serve.classifier.options import BATCH_LIMITS
from serve.classifier.variant import model_shape
from serve.engine.runner import ModelRunner
from serve.engine.shape import ModelShape
from serve.engine.warm_up import ON_CPU, measure, on_gpu
from serve.runtime import cuda_provider as cuda
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner
from serve.runtime.device_memory import DeviceMemory
from serve.runtime.hardware import available_threads, choose_precision
from serve.runtime.ort_session import OpenSession, open_session, session_options
from serve.runtime.placement import Device, device_memory


class Scale(NamedTuple):
    """How large the batches of a run are, smallest first."""

    shapes: tuple[Shape, ...]  # of single batches
    token_limits: tuple[int, ...]  # of the engine's batches
    rows: int  # of the check of invariance


_ON_CUDA = (
    (1, 8), (1, 32), (1, 128), (8, 32), (32, 32), (8, 128), (32, 128), (128, 32), (64, 128),
    (512, 32),
)  # fmt: skip
_ON_CPU = ((1, 8), (1, 32), (4, 32))
SCALES: dict[Device, Scale] = {
    "cuda": Scale(tuple(Shape(*each) for each in _ON_CUDA), (2048, 8192, 16_384), 400),
    "cpu": Scale(tuple(Shape(*each) for each in _ON_CPU), (64, 128, 256), 24),
}


@dataclass(frozen=True)
class Place:
    """Where sessions run."""

    device: Device  # `cuda`, or `cpu` to try the same code
    # See `serve.runtime.cuda_provider.open_session`.
    attention_kernels: int = cuda.ATTENTION_KERNELS

    def options(self) -> ort.SessionOptions:
        """Return the server's options there."""
        if self.device == "cpu":
            return session_options(available_threads())
        return cuda.session_options()

    def opener(self, options: ort.SessionOptions | None = None) -> OpenSession:
        """Return a function that opens an ONNX file there; `options` default to the server's."""
        options = options or self.options()
        if self.device == "cpu":
            return partial(open_session, options=options)
        return partial(
            cuda.open_session,
            options=options,
            memory_bytes=None,
            attention_kernels=self.attention_kernels,
        )


class Presented(NamedTuple):
    """A model with some of its exits active."""

    runner: ModelRunner
    shape: ModelShape  # what the engine must know, measured costs included

    def layers(self, wanted: Sequence[int]) -> list[int]:
        """Return the active exit layers at which rows leave that may leave at these layers."""
        return [next(exit_ for exit_ in self.shape.exits if exit_ >= layer) for layer in wanted]


@dataclass(frozen=True)
class DeviceVariant:
    """One variant on the device."""

    bundle: Bundle
    precision: Precision
    place: Place
    chain: CudaRunner
    memory: DeviceMemory
    vocabulary: int  # number of token ids

    @property
    def max_tokens(self) -> int:
        """Longest input."""
        return self.bundle.manifest.max_tokens

    @property
    def shape(self) -> ModelShape:
        """What the engine must know of the model."""
        return model_shape(self.bundle.manifest)

    @property
    def scale(self) -> Scale:
        """How large batches are there."""
        return SCALES[self.place.device]

    @property
    def shapes(self) -> list[Shape]:
        """The shapes that the model takes."""
        return [shape for shape in self.scale.shapes if shape.tokens <= self.max_tokens]

    def presenting(self, active: Sequence[int]) -> Presented:
        """Return the model with fewer exits; their costs are measured.

        Args:
            active: indices of the exits, ascending; the last one is among them.
        """
        every = self.shape
        traits = replace(every.traits, exits=tuple(every.exits[index] for index in active))
        temperatures = tuple(every.temperatures[index] for index in active)
        chain = self.chain.presenting(active)
        device = self.place.device
        warm_up = on_gpu(BATCH_LIMITS[device]) if device == "cuda" else ON_CPU
        costs = measure(chain, self.max_tokens, warm_up)
        return Presented(chain, ModelShape(traits, temperatures, every.pad_id, costs))


def spread(num_exits: int, num_active: int) -> tuple[int, ...]:
    """Return the indices of some exits, spread evenly; the last one is among them."""
    return tuple(round((i + 1) * num_exits / num_active) - 1 for i in range(num_active))


def variants(bundle: Bundle) -> list[Precision]:
    """Return every variant that a GPU may run."""
    return [precision for precision in FOR_GPUS if precision in bundle.manifest.variants]


def load(bundle: Bundle, precision: Precision, place: Place) -> DeviceVariant:
    """Return a variant on the device."""
    memory = device_memory(place.device)
    chain = CudaRunner(bundle, precision, memory, place.opener())
    vocabulary = Tokenizer.from_file(str(bundle.tokenizer_path)).get_vocab_size()
    return DeviceVariant(bundle, precision, place, chain, memory, vocabulary)


def reference(bundle: Bundle) -> CpuRunner:
    """Return the fp32 segments on the CPU provider.

    Raises:
        DeviceUnavailable: the bundle has none.
    """
    return CpuRunner(bundle, choose_precision("fp32", bundle), available_threads())
