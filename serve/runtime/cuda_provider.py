"""CUDA through ONNX Runtime: whether this process can use it, and the options of its sessions.

The wheel lists the CUDA provider on every machine, and ONNX Runtime falls back to the CPU with
only a line in the log. So everything that CUDA needs is checked first, and every session is asked
for the provider that it runs on.
"""

import ctypes
import io
import logging
import math
import os
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import onnxruntime as ort

from serve.errors import DeviceUnavailable, InvalidBundle
from serve.runtime import ort_session
from serve.runtime.device_memory import STREAM

PROVIDER = "CUDAExecutionProvider"
_SAME_AS_REQUESTED = 1
# Kernels that attention may use: flash (1), memory-efficient (2), TensorRT's fused (4) and flash
# (32), and plain products (16). Not cuDNN (8), which ONNX Runtime prefers for fp16 from Hopper on:
# cuDNN makes a plan for each number of rows and tokens, in each session and thread.
ATTENTION_KERNELS = 1 + 2 + 4 + 32 + 16
# ONNX Runtime loads it only when an operator needs it, such as a sum over an axis.
_CUDNN = "libcudnn.so.9"
# The architectures that ONNX Runtime 1.31's wheel has kernels for, major: from which minor on. A
# kernel runs on all later ones of its major number.
_KERNELS = {7: 5, 8: 0, 9: 0, 12: 0}
_COMPUTE_CAPABILITY = 75, 76  # major and minor, in `cuDeviceGetAttribute`
_shared_arena: list[int | None] = []  # the arena's limit, once the arena is made

# Makes a node that would run on the CPU an error, not copies that are never noticed.
_NO_CPU_NODES = "session.disable_cpu_ep_fallback"
_CPU_NODES_FOUND = "fallback to CPU EP has been explicitly disabled"

log = logging.getLogger(__name__)
_REMEDY = "; pass --device cpu, or put right what is missing"


@cache
def fault() -> str | None:
    """Return why this process cannot use CUDA, or None if nothing stands in the way.

    Checks ONNX Runtime's provider, the driver, the devices, the CUDA libraries and their bindings
    to Python. It occupies no memory on the device.
    """
    if PROVIDER not in ort.get_available_providers():
        return "the installed onnxruntime has no CUDA provider: install onnxruntime-gpu"
    return _driver_fault() or _device_fault() or _library_fault() or _bindings_fault()


def require() -> None:
    """Raise `DeviceUnavailable`, saying why, unless CUDA can be used."""
    reason = fault()
    if reason is not None:
        raise DeviceUnavailable(f"CUDA cannot be used here: {reason}{_REMEDY}")


def num_devices() -> int:
    """Return how many CUDA devices this process sees; it must be able to use CUDA."""
    devices = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(devices))
    return devices.value


def session_options() -> ort.SessionOptions:
    """Return the options of sessions on CUDA: one thread, and no nodes on the CPU."""
    options = ort_session.session_options(1)
    options.add_session_config_entry(_NO_CPU_NODES, "1")
    return options


def open_session(
    model: Path,
    options: ort.SessionOptions,
    memory_bytes: int | None,
    attention_kernels: int = ATTENTION_KERNELS,
) -> ort.InferenceSession:
    """Return a session that runs on the first visible CUDA device, and on no other kind.

    Args:
        model: an ONNX file.
        options: from `session_options`. Where they allow no nodes on the CPU and the graph needs
            some, they are changed to allow them, and a warning is logged: attention of some models
            computes shapes there.
        memory_bytes: limit of the memory of all sessions of the process; None for none.
        attention_kernels: that attention may use, a sum of ONNX Runtime's values for
            `sdpa_kernel`; 0 leaves it the choice.

    Raises:
        DeviceUnavailable: this process cannot use CUDA.
        InvalidBundle: ONNX Runtime cannot load the file.
    """
    require()
    _share_memory(memory_bytes)
    chosen = [(PROVIDER, provider_options(memory_bytes, attention_kernels))]
    try:
        session = _open(model, options, chosen)
    except InvalidBundle as error:
        if _CPU_NODES_FOUND not in str(error):
            raise
        log.warning("%s: some nodes run on the CPU, and each step may wait for copies", model)
        options.add_session_config_entry(_NO_CPU_NODES, "0")
        session = _open(model, options, chosen)
    if session.get_providers()[0] != PROVIDER:
        raise DeviceUnavailable(
            "CUDA cannot be used here: ONNX Runtime could not set up its CUDA provider; "
            f"its warnings above say why{_REMEDY}"
        )
    return session


def _open(
    model: Path, options: ort.SessionOptions, providers: list[tuple[str, dict[str, str]]]
) -> ort.InferenceSession:
    try:
        # Without `enable_fallback=0` a failure here would end in a session on the CPU.
        return ort.InferenceSession(model, options, providers=providers, enable_fallback=0)
    except Exception as error:  # ONNX Runtime's errors have no common type
        reason = str(error).splitlines()[0]
        raise InvalidBundle(f"ONNX Runtime cannot load {model} on CUDA: {reason}") from error


def provider_options(
    memory_bytes: int | None, attention_kernels: int = ATTENTION_KERNELS
) -> dict[str, str]:
    """Return the CUDA provider's options; the arguments are those of `open_session`."""
    options = {
        "device_id": "0",  # of those that CUDA_VISIBLE_DEVICES shows
        "user_compute_stream": str(STREAM),
        "do_copy_in_default_stream": "1",
        "arena_extend_strategy": "kSameAsRequested",
        # With the ten bits of TF32, fp32 would differ from the model by more than is allowed.
        "use_tf32": "0",
        # Sums for the norm are then in fp32, also in fp16 models.
        "enable_skip_layer_norm_strict_mode": "1",
        "sdpa_kernel": str(attention_kernels),
    }
    if memory_bytes is not None:
        options["gpu_mem_limit"] = str(memory_bytes)
    return options


def _share_memory(memory_bytes: int | None) -> None:
    """Let the process's sessions work in one arena on the device, under one limit.

    Otherwise each session would have an arena of its own, sized for its largest batch, and the
    limit would hold for each arena.
    """
    if _shared_arena == [memory_bytes]:
        return
    if _shared_arena:
        raise DeviceUnavailable("this process shares the GPU's memory under another limit already")
    limits = {"max_mem": memory_bytes or 0, "arena_extend_strategy": _SAME_AS_REQUESTED}
    arena, default = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
    try:
        ort.create_and_register_allocator_v2(
            PROVIDER, ort.OrtMemoryInfo("Cuda", arena, 0, default), {}, ort.OrtArenaCfg(limits)
        )
    except Exception as error:  # ONNX Runtime's errors have no common type
        reason = str(error).splitlines()[0]
        raise DeviceUnavailable(f"CUDA cannot be used here: {reason}{_REMEDY}") from error
    _shared_arena.append(memory_bytes)


def _driver_fault() -> str | None:
    """Ask the driver, which neither prints nor occupies the device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1)"
    status = driver.cuInit(0)
    if status:
        return f"the NVIDIA driver cannot start (cuInit gives {status})"
    if not num_devices():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return f"there is no CUDA device (CUDA_VISIBLE_DEVICES is {visible!r})"
    supported = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(supported))
    needed = int(ort.cuda_version.partition(".")[0])
    if supported.value // 1000 < needed:
        return (
            f"the NVIDIA driver supports CUDA {supported.value // 1000}, and onnxruntime-gpu "
            f"{ort.__version__} needs CUDA {needed}: update the driver"
        )
    return None


def _device_fault() -> str | None:
    """Tell whether the wheel has kernels for the first device's architecture."""
    driver, found = ctypes.CDLL("libcuda.so.1"), []
    for attribute in _COMPUTE_CAPABILITY:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
        found.append(value.value)
    major, minor = found
    if minor >= _KERNELS.get(major, math.inf):
        return None
    known = ", ".join(f"{major}.{minor}" for major, minor in _KERNELS.items())
    return (
        f"the GPU has compute capability {major}.{minor}, and onnxruntime-gpu {ort.__version__} "
        f"has kernels from {known} on, each up to the next whole number: take another GPU, or "
        "build ONNX Runtime for this one"
    )


def _library_fault() -> str | None:
    """Load CUDA's libraries, pip's or the system's; name one that is missing."""
    printed = io.StringIO()
    with redirect_stdout(printed):  # the only way `preload_dlls` reports
        ort.preload_dlls()
    failed = "Failed to load "
    missing = [line for line in printed.getvalue().splitlines() if line.startswith(failed)]
    if not missing:
        try:  # `preload_dlls` does not report this one
            ctypes.CDLL(_CUDNN)
        except OSError as error:
            missing = [str(error)]
    if not missing:
        return None
    return (
        f"{missing[0].removeprefix(failed)}: install CUDA {ort.cuda_version} and cuDNN 9, or pip "
        "install 'onnxruntime-gpu[cuda,cudnn]' beside onnxruntime-gpu"
    )


def _bindings_fault() -> str | None:
    try:
        import cuda.bindings.runtime  # noqa: F401
    except ImportError as error:
        return f"{error}: pip install 'offramp[gpu]'"
    return None
