"""What the checks ran on, and which of a bundle's operators really run on the device."""

import os
import platform
import shutil
import subprocess
from collections import Counter
from typing import Any

import onnxruntime as ort

from loadtest.bench.gpu.loaded_bundle import NUM_THREADS, Place, Subject
from serve.bundle.loader import Bundle
from serve.runtime import cuda_provider as cuda
from serve.runtime.ort_session import session_options
from serve.version import __version__

# What a layer's time goes into; small operators on shapes may well run on the CPU.
_HEAVY = {"MatMul", "Attention", "MultiHeadAttention", "Gemm", "BiasGelu", "FastGelu"}
_HEAVY |= {"LayerNormalization", "SkipLayerNormalization", "FusedMatMul"}
_QUERY = "name,driver_version,memory.total,compute_cap,clocks.max.sm"
_WAIT_S = 30
_WARNINGS = 2


def facts(bundle: Bundle, place: Place) -> dict[str, Any]:
    """Return versions, and the device if it tells about itself."""
    return {
        "bundle": bundle.name,
        "device": place.device,
        "gpu": gpu() if place.device == "cuda" else None,
        "attention_kernels": place.attention_kernels,
        "onnxruntime": ort.__version__,
        "cuda_of_build": ort.cuda_version,
        "offramp": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def gpu() -> dict[str, str] | None:
    """Return what nvidia-smi says of the first visible device, or None if it says nothing."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    arguments = [command, f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    try:
        said = subprocess.run(
            arguments, capture_output=True, text=True, check=True, timeout=_WAIT_S
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    if not said.strip():
        return None
    values = [value.strip() for value in said.splitlines()[0].split(",")]
    return dict(zip(_QUERY.split(","), values, strict=True))


def operators(subject: Subject) -> dict[str, dict[str, int]]:
    """Return, per execution provider, how many operators of each kind it was given.

    ONNX Runtime then warns on stderr of copies between host and device within a graph, which are
    put in later.
    """
    options = session_options(NUM_THREADS)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.log_severity_level = _WARNINGS
    open_session = subject.place.opener(options)
    found: dict[str, Counter[str]] = {}
    for path in subject.bundle.segment_paths(subject.precision):
        for part in open_session(path).get_provider_graph_assignment_info():
            kinds = found.setdefault(part.ep_name, Counter())
            kinds.update(node.op_type for node in part.get_nodes())
    return {provider: dict(kinds) for provider, kinds in found.items()}


def strays(assigned: dict[str, dict[str, int]]) -> list[str]:
    """Return which of `operators` should run on the GPU and do not."""
    elsewhere = {k for p, kinds in assigned.items() if p != cuda.PROVIDER for k in kinds}
    return sorted(elsewhere & _HEAVY)
