"""A bundle's segments beside the same model as one graph, over several shapes."""

from collections.abc import Sequence
from typing import Any

from loadtest.bench.inputs import SHAPES, Shape
from loadtest.bench.loaded_bundle import load
from loadtest.bench.segments.segment_timing import time_segments
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.process_memory import settle_memory


def compare(
    bundle: Bundle,
    precision: Precision,
    num_threads: int,
    seconds: float,
    shapes: Sequence[Shape] = SHAPES,
) -> dict[str, Any]:
    """Return all figures as JSON data.

    Args:
        bundle: to measure.
        precision: variant of both the segments and the one graph.
        num_threads: of every session.
        seconds: time for each shape.
        shapes: those longer than the model's limit are left out.
    """
    loaded = load(bundle, precision, num_threads)
    beside_fp32 = precision != "fp32" and "fp32" in bundle.manifest.variants
    fp32 = CpuRunner(bundle, "fp32", num_threads) if beside_fp32 else None
    settle_memory()
    fitting = [shape for shape in shapes if shape.tokens <= bundle.manifest.max_tokens]
    timings = [time_segments(loaded, shape, seconds, fp32=fp32) for shape in fitting]
    return {
        "bundle": bundle.name,
        "precision": precision,
        "threads": num_threads,
        "exit_layers": list(bundle.manifest.exit_layers),
        "shapes": [timing.as_json() for timing in timings],
    }
