"""The bundle under test: its variants on the device, and what they are compared with."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Tokenizer

from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.runtime import cuda_provider as cuda
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner, OpenSession
from serve.runtime.ort_session import session_options
from serve.runtime.placement import Device
from serve.runtime.sessions import open_session

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]

PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
NUM_THREADS = 2


@dataclass(frozen=True)
class Place:
    """Where sessions run.

    Attributes:
        device: `cuda`, or `cpu` to try the same code.
        attention_kernels: see `serve.runtime.cuda_provider.open_session`.
    """

    device: Device
    attention_kernels: int = cuda.ATTENTION_KERNELS

    def opener(self, options: ort.SessionOptions | None = None) -> OpenSession:
        """Return what opens an ONNX file there, with our own session options or others."""
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
class Subject:
    """One variant on the device.

    Attributes:
        bundle: it is from.
        precision: of the variant.
        place: where it runs.
        chain: its segments there.
        vocabulary: ids are drawn below this.
    """

    bundle: Bundle
    precision: Precision
    place: Place
    chain: CudaRunner
    vocabulary: int

    @property
    def max_tokens(self) -> int:
        """Longest input."""
        return self.bundle.manifest.max_tokens


def variants(bundle: Bundle) -> list[Precision]:
    """Return every variant that a GPU may run."""
    return [precision for precision in PRECISIONS if precision in bundle.manifest.variants]


def load(bundle: Bundle, precision: Precision, place: Place) -> Subject:
    """Return a variant on the device."""
    vocabulary = Tokenizer.from_file(str(bundle.tokenizer_path)).get_vocab_size()
    chain = CudaRunner(bundle, precision, place.device, place.opener())
    return Subject(bundle, precision, place, chain, vocabulary)


def reference(bundle: Bundle) -> CpuRunner:
    """Return what the variants are compared with: the fp32 segments on the CPU provider."""
    variants = bundle.manifest.variants
    precision = "fp32" if "fp32" in variants else next(iter(variants))
    return CpuRunner(bundle, precision, NUM_THREADS)


def random_ids(generator: np.random.Generator, vocabulary: int, lengths: Ids) -> tuple[Ids, Ids]:
    """Return ids and mask, both (rows, tokens), padded with 0 on the right."""
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    return generator.integers(0, vocabulary, mask.shape) * mask, mask


def all_heads(chain: CudaRunner | CpuRunner, ids: Ids) -> Logits:
    """Return (exits, labels): what every exit says of one text alone.

    Args:
        chain: with all its exits.
        ids: (tokens,).
    """
    mask = np.ones_like(ids)[None]
    step = chain.start(ids[None], mask, np.zeros_like(mask))
    heads = [step.logits[0]]
    for index in range(1, len(chain)):
        step = chain.advance(index, step.hidden, np.zeros(1, np.int64), mask)
        heads.append(step.logits[0])
    return np.stack(heads)
