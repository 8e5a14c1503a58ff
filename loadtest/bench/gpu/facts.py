"""The GPU that a run is on, and which operators of a bundle run on it."""

import shutil
import subprocess
from collections import Counter
from typing import Any

import onnxruntime as ort

from loadtest.bench.gpu.device_variant import NUM_THREADS, DeviceVariant, Place
from serve.bundle.loader import Bundle
from serve.runtime import cuda_provider as cuda
from serve.runtime.ort_session import session_options

# The operators that take a layer's time; small operators on shapes may run on the CPU.
_HEAVY = {"MatMul", "Attention", "MultiHeadAttention", "Gemm", "BiasGelu", "FastGelu"}
_HEAVY |= {"LayerNormalization", "SkipLayerNormalization", "FusedMatMul"}
_QUERY = "name,driver_version,memory.total,compute_cap,clocks.max.sm"
_WAIT_S = 30
_WARNINGS = 2


def device_facts(bundle: Bundle, place: Place) -> dict[str, Any]:
    """Return the bundle, the device, and what nvidia-smi says of it."""
    return {
        "bundle": bundle.name,
        "device": place.device,
        "gpu": gpu() if place.device == "cuda" else None,
        "attention_kernels": place.attention_kernels,
        "cuda_of_build": ort.cuda_version,
    }


def gpu() -> dict[str, str] | None:
    """Return what nvidia-smi says of the first visible device, or None if it says nothing."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    arguments = [command, f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    try:
        output = subprocess.run(
            arguments, capture_output=True, text=True, check=True, timeout=_WAIT_S
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    if not output.strip():
        return None
    values = [value.strip() for value in output.splitlines()[0].split(",")]
    return dict(zip(_QUERY.split(","), values, strict=True))


def operators(variant: DeviceVariant) -> dict[str, dict[str, int]]:
    """Return how many operators of each kind each execution provider was given.

    ONNX Runtime warns on stderr of the copies between host and device that it adds to a graph.
    """
    options = session_options(NUM_THREADS)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.log_severity_level = _WARNINGS
    open_session = variant.place.opener(options)
    found: dict[str, Counter[str]] = {}
    bundle, precision = variant.bundle, variant.precision
    for path in [*bundle.segment_paths(precision), *bundle.head_paths(precision)]:
        for part in open_session(path).get_provider_graph_assignment_info():
            kinds = found.setdefault(part.ep_name, Counter())
            kinds.update(node.op_type for node in part.get_nodes())
    return {provider: dict(kinds) for provider, kinds in found.items()}


def strays(assigned: dict[str, dict[str, int]]) -> list[str]:
    """Return the operators that should run on the GPU and do not."""
    elsewhere = {k for p, kinds in assigned.items() if p != cuda.PROVIDER for k in kinds}
    return sorted(elsewhere & _HEAVY)
