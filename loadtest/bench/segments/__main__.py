"""`python -m loadtest.bench.segments`: what cutting a model costs, and leaving early saves."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from loadtest.bench.segments.comparison import compare
from loadtest.http.console import run_typed
from serve.bundle.loader import load_bundle
from serve.runtime.hardware import available_threads, choose_precision


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
    console.print(_table(document))
    if json_file:
        json_file.write_text(json.dumps(document, indent=2) + "\n")


def _table(document: dict[str, Any]) -> Table:
    shapes, layers = document["shapes"], document["exit_layers"]
    threads = document["threads"]
    clock = "1 thread (CPU time)" if threads == 1 else f"{threads} threads"
    title = f"{document['bundle']}, {document['precision']}, {clock}"
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", caption_justify="left")
    table.caption = (
        "one graph: the last head alone; segments: one call for rows that leave at the last exit\n"
        "one call a segment: every head runs, against the one graph\n"
        "exits: time until the answer as a share of a full run (share of the layers)"
    )
    table.add_column("rows x tokens", no_wrap=True)
    for shape in shapes:
        table.add_column(f"{shape['rows']} x {shape['tokens']}", justify="right", no_wrap=True)
    for name, cells in _rows(shapes):
        table.add_row(name, *cells)
    table.add_section()
    for index, layer in enumerate(layers):
        shares = (f"{shape['exit_shares'][index]:.2f}" for shape in shapes)
        table.add_row(f"exit {layer} ({layer / layers[-1]:.2f})", *shares)
    return table


def _rows(shapes: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    rows = [
        ("one graph, ms", [f"{s['one_graph_ms']:.2f}" for s in shapes]),
        ("segments, ms", [f"{s['segments_ms']:.2f}" for s in shapes]),
        ("segments / one graph", [f"{s['ratio']:.2f}" for s in shapes]),
        ("one call a segment", [f"{s['each_segment_ms'] / s['one_graph_ms']:.2f}" for s in shapes]),
    ]
    if shapes and shapes[0]["fp32_segments_ms"]:
        gains = [f"{s['fp32_segments_ms'] / s['segments_ms']:.2f}x" for s in shapes]
        rows.append(("faster than fp32", gains))
    return rows


if __name__ == "__main__":
    sys.exit(run_typed("benchmark", bench))
