"""The GPU that a run is on, and what of the model runs on it."""

import shutil
import subprocess
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import onnxruntime as ort

from loadtest.bench.gpu.device_variant import DeviceVariant, Place
from loadtest.bench.gpu.plan import Figures
from loadtest.bench.gpu.subject import Subject
from serve.bundle.loader import Bundle
from serve.runtime import cuda_provider as cuda

# The operators that take a layer's time; small operators on shapes may run on the CPU.
_HEAVY = {"MatMul", "Attention", "MultiHeadAttention", "Gemm", "BiasGelu", "FastGelu"}
_HEAVY |= {"LayerNormalization", "SkipLayerNormalization", "FusedMatMul"}
_QUERY = "name,driver_version,memory.total,compute_cap,clocks.max.sm"
_WAIT_S = 30
_WARNINGS = 2
_LIBRARIES = ("torch", "transformers", "onnx", "tokenizers", "cuda-bindings", "pydantic")


def device_facts(bundle: Bundle, place: Place) -> dict[str, Any]:
    """Return the bundle, the device, what nvidia-smi says of it, and versions."""
    return {
        "bundle": bundle.name,
        "device": place.device,
        "gpu": gpu() if place.device == "cuda" else None,
        "attention_kernels": place.attention_kernels,
        "cuda_of_build": ort.cuda_version,
        "libraries": {name: _version(name) for name in _LIBRARIES},
    }


def gpu() -> dict[str, str] | None:
    """Return what nvidia-smi says of the first visible device, or None if it says nothing."""
    values = ask_smi(_QUERY)
    return dict(zip(_QUERY.split(","), values, strict=True)) if values else None


def ask_smi(query: str) -> list[str] | None:
    """Return what nvidia-smi says of the first visible device, or None if it says nothing."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    arguments = [command, f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        output = subprocess.run(
            arguments, capture_output=True, text=True, check=True, timeout=_WAIT_S
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    if not output.strip():
        return None
    return [value.strip() for value in output.splitlines()[0].split(",")]


def measure_facts(subject: Subject, figures: Figures, seconds: float) -> None:
    """Find where operators run, and whether any falls back."""
    assigned = operators(subject.variant)
    figures.add("operators", assigned)
    if subject.on_cuda:
        for kind in strays(assigned):
            figures.problem(f"{kind} does not run on the GPU")


def operators(variant: DeviceVariant) -> dict[str, dict[str, int]]:
    """Return how many operators of each kind each execution provider was given.

    ONNX Runtime warns on stderr of the copies between host and device that it adds to a graph.
    """
    options = variant.place.options()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.log_severity_level = _WARNINGS
    open_session = variant.place.opener(options)
    found: dict[str, Counter[str]] = {}
    for path in _graphs(variant):
        for part in open_session(path).get_provider_graph_assignment_info():
            kinds = found.setdefault(part.ep_name, Counter())
            kinds.update(node.op_type for node in part.get_nodes())
    return {provider: dict(kinds) for provider, kinds in found.items()}


def strays(assigned: dict[str, dict[str, int]]) -> list[str]:
    """Return the operators that should run on the GPU and do not."""
    elsewhere = {k for p, kinds in assigned.items() if p != cuda.PROVIDER for k in kinds}
    return sorted(elsewhere & _HEAVY)


def _graphs(variant: DeviceVariant) -> list[Path]:
    bundle, precision = variant.bundle, variant.precision
    return [*bundle.segment_paths(precision), *bundle.head_paths(precision)]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
