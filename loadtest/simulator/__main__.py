"""`python -m loadtest.simulator`: the scheduler on devices and under loads that are not at hand."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from loadtest.http.console import run_typed
from loadtest.simulator.arrivals import Arrivals, Bursts, Poisson
from loadtest.simulator.device import Device
from loadtest.simulator.errors import InvalidSimulation
from loadtest.simulator.exit_mixes import read_mix
from loadtest.simulator.grid import as_document, measure
from loadtest.simulator.lengths import read_lengths
from loadtest.simulator.presets import PRESETS, read_device
from loadtest.simulator.scenario import COMPLETION, ENGINE, Scenario
from loadtest.simulator.tables import part_table, summary_table
from loadtest.simulator.workload import Traffic

_LOADS = "0.70,0.75,0.80,0.85,0.90,0.95"
_BURST_RUNS = 10  # mean length of a burst, in lone full runs
_TYPICAL_TOKENS = 25  # of a text with so many tokens


def simulate(
    cost: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(PRESETS)}, measured:FILE of the GPU check, or a file with the answer "
            "of GET /v1/models/{m}."
        ),
    ] = "h100",
    layers: Annotated[int, typer.Option(help="Segments of the model.", min=1, max=96)] = 12,
    arrivals: Annotated[
        str, typer.Option(help="poisson, bursts, or both with a comma.")
    ] = "poisson,bursts",
    exits: Annotated[
        list[str] | None,
        typer.Option(
            help="uniform:2-12, deebert:5, fixed:4, never or weights:...; may be repeated.",
            show_default="deebert:5 and uniform over 2 to the last",
        ),
    ] = None,
    lengths: Annotated[
        str,
        typer.Option(help="sst2-like, a number of tokens, or a file, one length or text a line."),
    ] = "sst2-like",
    loads: Annotated[str, typer.Option(help="Arrival rates relative to the reference.")] = _LOADS,
    relative_to: Annotated[
        Literal["completion", "engine"],
        typer.Option(
            help="Whose saturated capacity is load 1: run-to-completion batches' or ours."
        ),
    ] = "completion",
    requests: Annotated[
        int, typer.Option(help="Requests in each simulation.", min=100, max=10_000_000)
    ] = 20_000,
    bound: Annotated[
        float, typer.Option(help="Latency bound in times of a lone full run.", min=1)
    ] = 5.0,
    search: Annotated[
        bool, typer.Option(help="Look for the highest rate whose p99 keeps the bound.")
    ] = True,
    max_rows: Annotated[
        int | None,
        typer.Option(help="Rows in a batch.", min=1, show_default="the server's on the device"),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Rows times longest row.", min=1, show_default="as for --max-rows"),
    ] = None,
    urgent: Annotated[
        float, typer.Option(help="Share of requests with high priority.", min=0, max=1)
    ] = 0.0,
    timeout_ms: Annotated[
        float | None, typer.Option(help="Deadline of each request after its arrival.", min=0.001)
    ] = None,
    batch_share: Annotated[
        float, typer.Option(help="Share of requests with several texts.", min=0, max=1)
    ] = 0.0,
    batch_texts: Annotated[int, typer.Option(help="Texts in those requests.", min=2)] = 64,
    seed: Annotated[int, typer.Option(help="Of everything drawn.", min=0)] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
) -> None:
    """Compare the engine's scheduler with batches that run to completion, on simulated devices.

    All contenders get the same requests, the same costs and the same limits on a batch: the engine;
    batches of the whole model without early exit; and batches that rows leave early but none joins
    before the end. The same seed gives the same figures.
    """
    device = read_device(cost, layers)
    limits = replace(
        device.limits,
        max_rows=max_rows or device.limits.max_rows,
        max_tokens=max_tokens or device.limits.max_tokens,
    )
    reference = ENGINE if relative_to == "engine" else COMPLETION
    rates = _read_loads(loads)
    traffics = [
        Traffic(
            _read_arrivals(kind.strip(), device),
            read_mix(mix, layers),
            read_lengths(lengths),
            urgent_share=urgent,
            timeout_s=timeout_ms / 1000 if timeout_ms else float("inf"),
            batch_share=batch_share,
            batch_texts=batch_texts,
        )
        for kind in arrivals.split(",")
        for mix in exits or ["deebert:5", f"uniform:2-{layers}"]
    ]
    scenario = Scenario(device, limits, requests, seed, bound)
    console = Console()
    parts = []
    for traffic in traffics:
        with _progress(console, scenario, traffic) as shown:
            parts.append(measure(shown, traffic, rates, reference, search))
        if rates:
            console.print(part_table(parts[-1], reference))
    console.print(summary_table(parts))
    if json_file:
        document = {
            **{name: getattr(scenario, name) for name in ("num_requests", "seed", "bound_times")},
            "device": asdict(device),
            "limits": asdict(limits),
            "loads_relative_to": reference,
            "parts": [as_document(part) for part in parts],
        }
        json_file.write_text(json.dumps(document, indent=2) + "\n")


def _read_loads(text: str) -> list[float]:
    try:
        loads = sorted({float(part) for part in text.split(",") if part.strip()})
    except ValueError:
        loads = [0.0]
    if not all(0 < load < float("inf") for load in loads):
        raise InvalidSimulation(
            f"loads {text!r}: expected positive numbers separated by commas, as {_LOADS}"
        )
    return loads


def _read_arrivals(kind: str, device: Device) -> Arrivals:
    if kind == "poisson":
        return Poisson()
    if kind == "bursts":
        return Bursts(burst_s=_BURST_RUNS * device.lone_s(_TYPICAL_TOKENS))
    raise InvalidSimulation(f"arrivals {kind!r}: expected poisson or bursts")


@contextmanager
def _progress(console: Console, scenario: Scenario, traffic: Traffic) -> Iterator[Scenario]:
    """Show how many requests have been simulated."""
    columns = (
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f} requests"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{traffic.arrivals.name}, {traffic.mix.name}", total=None)
        yield replace(scenario, progress=lambda num: progress.advance(task, num))


if __name__ == "__main__":
    sys.exit(run_typed("simulation", simulate))
