"""`python -m loadtest.bench.segments`: what cutting a model costs, and leaving early saves."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loadtest.bench.inputs import SHAPES, Shape
from loadtest.bench.loaded_bundle import load
from loadtest.bench.segments.segment_timing import time_segments
from loadtest.http.console import print_text, run_typed
from models.report.markdown import table
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Precision
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.hardware import available_threads, choose_precision
from serve.runtime.process_memory import settle_memory


def bench(
    bundle: Annotated[Path, typer.Argument(help="Bundle to measure.")],
    precision: Annotated[
        str, typer.Option(help="Variant: fp32, int8, or auto as the server chooses.")
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option(help="All cores if absent; 1 measures CPU time.", min=1)
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time for each shape.", min=0)] = 10,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
) -> None:
    """Compare a bundle's segments with the same model as one graph, in one run.

    Prints, per number of rows and tokens, the median time of the one graph and of all segments,
    the median of their ratios in each turn, and after which share of a full run the answer of
    each exit is there.
    """
    loaded = load_bundle(bundle)
    chosen = choose_precision(precision, loaded)
    console = Console()
    with console.status("measuring"):
        document = compare(loaded, chosen, threads or available_threads(), seconds)
    print_text(console, _table(document))
    if json_file:
        json_file.write_text(json.dumps(document, indent=2) + "\n")


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


def _table(document: dict[str, Any]) -> str:
    """Return a column for each shape; the caption says what the lines are."""
    shapes, layers = document["shapes"], document["exit_layers"]
    rows = [
        ["one graph, ms", *(s["one_graph_ms"] for s in shapes)],
        ["segments, ms", *(s["segments_ms"] for s in shapes)],
        ["segments / one graph", *(s["ratio"] for s in shapes)],
        ["one call a segment", *(s["each_segment_ms"] / s["one_graph_ms"] for s in shapes)],
    ]
    if shapes and shapes[0]["fp32_segments_ms"]:
        gains = (s["fp32_segments_ms"] / s["segments_ms"] for s in shapes)
        rows.append(["times faster than fp32", *gains])
    for index, layer in enumerate(layers):
        name = f"exit {layer} ({layer / layers[-1]:.2f})"
        rows.append([name, *(s["exit_shares"][index] for s in shapes)])
    threads = document["threads"]
    clock = "1 thread (CPU time)" if threads == 1 else f"{threads} threads"
    return (
        f"{document['bundle']}, {document['precision']}, {clock}\n\n"
        f"{table(['rows x tokens', *(s['shape'] for s in shapes)], rows)}\n\n"
        "one graph: the last head alone; segments: one call for rows that leave at the last exit\n"
        "one call a segment: every head runs, against the one graph\n"
        "exits: time until the answer as a share of a full run (share of the layers)"
    )


if __name__ == "__main__":
    sys.exit(run_typed("benchmark", bench))
