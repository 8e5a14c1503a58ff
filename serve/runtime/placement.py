"""Where a bundle runs: the one place that chooses device and variant, and builds the runner."""

from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.errors import DeviceUnavailable
from serve.runtime import cuda_provider as cuda
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner
from serve.runtime.hardware import choose_precision
from serve.runtime.ort_session import session_options

Device: TypeAlias = Literal["cpu", "cuda"]

# Best first. int8 is made of kernels that the CUDA provider does not have.
_ON_CUDA: tuple[Precision, ...] = ("fp16", "fp32")


class Placement(NamedTuple):
    """A device, and the variant that runs there."""

    device: Device
    precision: Precision


def place(bundle: Bundle, device: str, precision: str) -> Placement:
    """Resolve both wishes for one bundle.

    Args:
        bundle: to be run.
        device: `auto`, `cpu` or `cuda`; auto is CUDA where it can be had and the bundle has a
            variant for it.
        precision: `auto` or a variant's name; auto is fp16 on CUDA if the bundle carries it, int8
            on a CPU with VNNI likewise, else fp32.

    Raises:
        DeviceUnavailable: the device or the variant cannot be had, or they do not go together.
    """
    if device == "cpu":
        return Placement("cpu", choose_precision(precision, bundle))
    if bundle.manifest.layers == "shared" and device == "cuda":
        raise DeviceUnavailable(
            f"the layers of {bundle.name} share their weights; such models run on CPUs only: "
            "pass --device cpu"
        )
    if device == "auto":
        on_cuda = _choose_on_cuda(precision, bundle)
        if on_cuda is None or cuda.fault() is not None:
            return Placement("cpu", choose_precision(precision, bundle))
        return Placement("cuda", on_cuda)
    cuda.require()
    on_cuda = _choose_on_cuda(precision, bundle)
    if on_cuda is None:
        wish = "fp16 or fp32" if precision == "auto" else precision
        raise DeviceUnavailable(
            f"bundle {bundle.name} has no {wish} variant that runs on CUDA; it has "
            f"{', '.join(bundle.manifest.variants)}: `offramp export --precision fp16` writes one, "
            "and --device cpu does without"
        )
    return Placement("cuda", on_cuda)


def build_runner(
    bundle: Bundle, placement: Placement, num_threads: int, gpu_memory_gb: float | None = None
) -> CpuRunner | CudaRunner:
    """Return the bundle's graphs, loaded.

    Args:
        bundle: to be run.
        placement: from `place`.
        num_threads: of each segment on a CPU.
        gpu_memory_gb: what the process's models may occupy on a GPU together; None for no limit.

    Raises:
        DeviceUnavailable: the GPU was lost since, or ONNX Runtime cannot use it.
        InvalidBundle: ONNX Runtime cannot load a segment.
    """
    if placement.device == "cpu":
        return CpuRunner(bundle, placement.precision, num_threads)
    memory_bytes = None if gpu_memory_gb is None else int(gpu_memory_gb * 2**30)
    open_session = partial(
        cuda.open_session, options=session_options(num_threads), memory_bytes=memory_bytes
    )
    return CudaRunner(bundle, placement.precision, "cuda", open_session)


def _choose_on_cuda(wish: str, bundle: Bundle) -> Precision | None:
    if bundle.manifest.layers == "shared":
        return None
    for precision in _ON_CUDA:
        if precision in bundle.manifest.variants and wish in ("auto", precision):
            return precision
    return None
