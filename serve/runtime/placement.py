"""Where a bundle runs: chooses device and variant, builds the runner, and tries it once."""

from collections.abc import Iterable
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from serve.bundle.loader import MANIFEST, Bundle
from serve.bundle.manifest import FOR_GPUS, Manifest, Precision
from serve.engine.runner import Hidden, ModelRunner, StepOutput
from serve.engine.warm_up import steps
from serve.errors import DeviceUnavailable, InvalidBundle, InvalidRequest
from serve.runtime import cuda_provider as cuda
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner
from serve.runtime.device_memory import MOST_BYTES, CudaMemory, DeviceMemory, HostMemory
from serve.runtime.hardware import choose_precision
from serve.runtime.ort_session import OpenSession, open_session, session_options

Device: TypeAlias = Literal["cpu", "cuda"]


class Placement(NamedTuple):
    """A device, and the variant that runs there."""

    device: Device
    precision: Precision


def place(bundle: Bundle, device: str, precision: str) -> Placement:
    """Resolve the device and the precision that were asked for.

    Args:
        bundle: the bundle to run.
        device: `auto`, `cpu` or `cuda`; auto is CUDA if this process can use it and the bundle has
            a variant for it.
        precision: `auto` or a variant's name; auto is fp16 on CUDA, and on a CPU the first that
            the bundle has of int8 (if the CPU has VNNI) and fp32.

    Raises:
        DeviceUnavailable: the device or the variant is not there, or the variant does not run on
            the device.
    """
    if device == "cpu":
        return Placement("cpu", choose_precision(precision, bundle))
    if device == "auto":
        on_cuda = _choose_on_cuda(precision, bundle)
        if on_cuda is None or cuda.fault() is not None:
            return Placement("cpu", choose_precision(precision, bundle))
        return Placement("cuda", on_cuda)
    cuda.require()
    on_cuda = _choose_on_cuda(precision, bundle)
    if on_cuda is None:
        wish = "" if precision == "auto" else f"{precision} "
        raise DeviceUnavailable(
            f"bundle {bundle.name} has no {wish}variant that runs on CUDA; it has "
            f"{', '.join(bundle.manifest.variants)}: `offramp export --precision fp16` writes one, "
            "and --device cpu does without"
        )
    return Placement("cuda", on_cuda)


def share_gpus(placements: Iterable[Placement], num_replicas: int, share: float | None) -> float:
    """Return how much of a GPU each replica on this host takes; 0 if no model runs on one.

    Args:
        placements: where each model runs, alike in all replicas.
        num_replicas: on this host.
        share: what was asked for, at most 1; None for a GPU each.

    Raises:
        InvalidRequest: no model runs on a GPU, or the host has too few of them.
    """
    if all(placement.device == "cpu" for placement in placements):
        if share is not None:
            raise InvalidRequest("--gpus-per-replica: no model runs on a GPU; leave it out")
        return 0.0
    share, num_gpus = share or 1.0, cuda.num_devices()
    most = num_gpus * int(1 / share)
    if num_replicas > most:
        raise InvalidRequest(
            f"{num_replicas} replicas with {share:g} of a GPU each: this host has {num_gpus}, for "
            f"{most} replicas; start fewer, or let them share with a smaller --gpus-per-replica"
        )
    return share


def build_runner(
    bundle: Bundle, placement: Placement, num_threads: int, gpu_memory_gb: float | None = None
) -> CpuRunner | CudaRunner:
    """Load the bundle's graphs, and run them once against the manifest.

    `gpu_memory_gb` limits all models of the process together.

    Raises:
        DeviceUnavailable: ONNX Runtime cannot use the GPU any more.
        InvalidBundle: ONNX Runtime cannot load a graph, or it is not what the manifest says.
    """
    runner = _load(bundle, placement, num_threads, gpu_memory_gb)
    try_out(runner, bundle, placement.precision)
    return runner


def _load(
    bundle: Bundle, placement: Placement, num_threads: int, gpu_memory_gb: float | None
) -> CpuRunner | CudaRunner:
    if placement.precision not in FOR_GPUS:
        return CpuRunner(bundle, placement.precision, num_threads)
    opener: OpenSession
    if placement.device == "cpu":
        opener = partial(open_session, options=session_options(num_threads))
    else:
        memory_bytes = None
        if gpu_memory_gb is not None:
            memory_bytes = max(1, int(gpu_memory_gb * 2**30) - MOST_BYTES)
        opener = partial(
            cuda.open_session, options=cuda.session_options(), memory_bytes=memory_bytes
        )
    return CudaRunner(bundle, placement.precision, device_memory(placement.device), opener)


def device_memory(device: Device) -> DeviceMemory:
    """Return the memory of a device, as the runner for GPUs sees it."""
    return HostMemory() if device == "cpu" else CudaMemory()


def _choose_on_cuda(wish: str, bundle: Bundle) -> Precision | None:
    variants = bundle.manifest.variants
    return next((p for p in FOR_GPUS if p in variants and wish in ("auto", p)), None)


# A longer text is not tried: attention alone would take gigabytes.
MOST_TOKENS = 2048


def try_out(runner: ModelRunner, bundle: Bundle, precision: Precision) -> None:
    """Run the longest text with the largest ids through every exit, and compare the shapes.

    On a GPU an id beyond the embeddings is no error of ONNX Runtime and is not found.

    Raises:
        InvalidBundle: the graphs cannot run it, or what they give is not what the manifest says.
    """
    manifest = bundle.manifest
    where = f"{bundle.folder}: {precision}"
    num_tokens = min(manifest.max_tokens, MOST_TOKENS)
    # Not the padding's id, by which some models count positions.
    largest = (manifest.vocab_size or manifest.pad_id + 2) - 1
    ids = np.full((1, num_tokens), largest, np.int64)
    types = np.full_like(ids, manifest.type_vocab_size - 1 if manifest.token_types else 0)
    walk = steps(runner, ids, np.ones_like(ids), types)
    for layer in manifest.exit_layers:
        try:
            output = next(walk)
        except Exception as error:  # ONNX Runtime's errors have no common type
            # The innermost of nested nodes has the reason.
            reason = (str(error) or repr(error)).splitlines()[0].rpartition("Status Message: ")[2]
            raise InvalidBundle(
                f"{where}: the graphs fail at exit {layer} on a text of {num_tokens} tokens "
                f"with ids up to {largest} and types up to {types.max()}, which {MANIFEST} "
                f"allows: {reason}"
            ) from None
        for name, found, expected in _shapes(output, manifest, num_tokens):
            if found != expected:
                raise InvalidBundle(
                    f"{where}: exit {layer} gives {name} of shape {found}; by {MANIFEST} "
                    f"it is {expected}"
                )


def _shapes(
    output: StepOutput, manifest: Manifest, num_tokens: int
) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Return (name, shape found, shape expected) of what an exit gives for one text."""
    per_token = (num_tokens,) if manifest.task == "token" else ()
    labels = (1, *per_token, len(manifest.labels))
    shapes = [("logits", output.logits.shape, labels)]
    if output.uncertainty is not None:
        shapes.append(("uncertainty", output.uncertainty.shape, (1,)))
    if output.hidden is not None:
        hidden = (1, num_tokens, manifest.width)
        shapes.append(("hidden states", _shape(output.hidden), hidden))
    return shapes


def _shape(hidden: Hidden) -> tuple[int, ...]:
    """Return the shape of hidden states: of numpy a tuple, of an `OrtValue` a method."""
    return tuple(hidden.shape() if callable(hidden.shape) else hidden.shape)
