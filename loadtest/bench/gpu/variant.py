"""A bundle's variant on a device, and whether its answers are right there."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from loadtest.bench.engine_driver import driving, rows_of
from loadtest.bench.inputs import padded, random_texts, vocabulary_size
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.classifier.options import BATCH_LIMITS
from serve.classifier.variant import model_shape
from serve.engine.runner import ModelRunner
from serve.engine.shape import ModelShape
from serve.engine.warm_up import ON_CPU, measure, on_gpu, steps
from serve.runtime import cuda_provider as cuda
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner
from serve.runtime.hardware import available_threads, choose_precision
from serve.runtime.ort_session import OpenSession, open_session, session_options
from serve.runtime.placement import Device, device_memory

# A logit's distance from the fp32 segments on the CPU: fp16 keeps eleven bits, and each layer
# rounds several times.
TOLERANCE = 5e-2
_ODD_SHAPES = ((1, 1), (1, 7), (3, 33), (5, 128), (17, 96), (33, 8))
_LONGEST, _IN_FLIGHT = 64, 64


@dataclass(frozen=True)
class DeviceVariant:
    """One variant on a device: `cuda`, or `cpu` to try the same code without a GPU."""

    bundle: Bundle
    precision: Precision
    device: Device
    chain: CudaRunner
    vocabulary: int  # number of token ids
    max_tokens: int  # of an input

    @property
    def shape(self) -> ModelShape:
        """What the engine must know of the model."""
        return model_shape(self.bundle.manifest)

    def presenting(self, num_active: int) -> tuple[CudaRunner, ModelShape]:
        """Return the model with so many exits, spread evenly, and what their segments cost."""
        num_exits, every = len(self.chain), self.shape
        active = [round((i + 1) * num_exits / num_active) - 1 for i in range(num_active)]
        traits = replace(every.traits, exits=tuple(every.exits[index] for index in active))
        temperatures = tuple(every.temperatures[index] for index in active)
        chain = self.chain.presenting(active)
        warm_up = on_gpu(BATCH_LIMITS[self.device]) if self.device == "cuda" else ON_CPU
        costs = measure(chain, self.max_tokens, warm_up)
        return chain, ModelShape(traits, temperatures, every.pad_id, costs)


def load(bundle: Bundle, precision: Precision, device: Device) -> DeviceVariant:
    """Return a variant on a device."""
    chain = CudaRunner(bundle, precision, device_memory(device), opener(device))
    vocabulary, longest = vocabulary_size(bundle), bundle.manifest.max_tokens
    return DeviceVariant(bundle, precision, device, chain, vocabulary, longest)


def reference(bundle: Bundle) -> CpuRunner:
    """Return the fp32 segments on the CPU provider."""
    return CpuRunner(bundle, choose_precision("fp32", bundle), available_threads())


def opener(device: Device) -> OpenSession:
    """Return a function that opens an ONNX file there as the server does."""
    if device == "cpu":
        return partial(open_session, options=session_options(available_threads()))
    return partial(cuda.open_session, options=cuda.session_options(), memory_bytes=None)


def error_against_cpu(variant: DeviceVariant, expected: ModelRunner) -> float:
    """Return the largest difference of any exit's logits from the CPU's; NaN if one is NaN.

    Batches have odd shapes, and a row is dropped between segments.
    """
    draw, errors = np.random.default_rng(0), []
    for num_rows, num_tokens in _ODD_SHAPES:
        longest = min(num_tokens, variant.max_tokens)
        lengths = draw.integers(1, longest + 1, num_rows)
        lengths[0] = longest
        inputs = padded(random_texts(lengths, variant.vocabulary, seed=num_rows), 0)
        mask = inputs.attention_mask
        found, wanted = variant.chain.start(*inputs), expected.start(*inputs)
        errors.append(np.abs(found.logits - wanted.logits).max())
        for index in range(1, len(expected)):
            keep = draw.permutation(len(mask))[: max(1, len(mask) - 1)]
            mask = mask[keep]
            mask = np.ascontiguousarray(mask[:, : mask.sum(axis=1).max()])
            found = variant.chain.advance(index, found.hidden, keep, mask)
            wanted = expected.advance(index, wanted.hidden, keep, mask)
            errors.append(np.abs(found.logits - wanted.logits).max())
    return float(np.max(errors))


def error_in_batches(variant: DeviceVariant, num_rows: int) -> float:
    """Return how far the engine's logits are from those of each row alone; NaN if one is NaN.

    Fewer rows are in flight than there are, so that new rows meet deeper ones.
    """
    draw = np.random.default_rng(1)
    lengths = draw.integers(1, min(_LONGEST, variant.max_tokens) + 1, num_rows)
    texts = random_texts(lengths, variant.vocabulary)
    layers = draw.choice(variant.shape.exits, num_rows).tolist()
    with driving(variant.chain, variant.shape) as driver:
        driver.run(rows_of(variant.shape, texts, layers), _IN_FLIGHT)
        answers = driver.answers()
    errors = []
    for row, answer in answers:
        alone = list(steps(variant.chain, *padded([row.input_ids], variant.shape.pad_id)))
        errors.append(np.abs(answer.logits - alone[answer.exit_index].logits[0]).max())
    return float(np.max(errors))
