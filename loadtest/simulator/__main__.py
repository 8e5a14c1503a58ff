"""`python -m loadtest.simulator`: the scheduler on devices and under loads that are not at hand."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from loadtest.http.console import run_typed
from loadtest.simulator.arrivals import Arrivals, Bursts, Poisson
from loadtest.simulator.device import Device
from loadtest.simulator.errors import InvalidSimulation
from loadtest.simulator.exit_mixes import read_mix
from loadtest.simulator.part import measure
from loadtest.simulator.presets import PRESETS, read_device
from loadtest.simulator.scenario import Scenario
from loadtest.simulator.tables import summary_table
from loadtest.simulator.workload import Traffic

_BURST_RUNS = 10  # mean length of a burst, in lone full runs
_TYPICAL_TOKENS = 25  # of a text with so many tokens


def simulate(
    cost: Annotated[
        str,
        typer.Option(help=f"{', '.join(PRESETS)}, or measured:FILE of the GPU check."),
    ] = "h100",
    layers: Annotated[int, typer.Option(help="Segments of the model.", min=1, max=96)] = 12,
    arrivals: Annotated[
        str, typer.Option(help="poisson, bursts, or both with a comma.")
    ] = "poisson,bursts",
    exits: Annotated[
        list[str] | None,
        typer.Option(
            help="uniform:2-12, deebert:5, fixed:4 or never; may be repeated.",
            show_default="deebert:5 and uniform over 2 to the last",
        ),
    ] = None,
    requests: Annotated[
        int, typer.Option(help="Requests in each simulation.", min=100, max=10_000_000)
    ] = 20_000,
    bound: Annotated[
        float, typer.Option(help="Latency bound in times of a lone full run.", min=1)
    ] = 5.0,
    max_rows: Annotated[
        int | None,
        typer.Option(help="Rows in a batch.", min=1, show_default="the server's on the device"),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Rows times longest row.", min=1, show_default="as for --max-rows"),
    ] = None,
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
    traffics = [
        Traffic(_read_arrivals(kind.strip(), device), read_mix(mix, layers))
        for kind in arrivals.split(",")
        for mix in exits or ["deebert:5", f"uniform:2-{layers}"]
    ]
    scenario = Scenario(device, limits, requests, seed, bound)
    console = Console()
    parts = []
    for traffic in traffics:
        with _progress(console, scenario, traffic) as shown:
            parts.append(measure(shown, traffic))
    console.print(summary_table(parts))
    if json_file:
        document = {
            **{name: getattr(scenario, name) for name in ("num_requests", "seed", "bound_times")},
            "device": asdict(device),
            "limits": asdict(limits),
            "parts": [part.as_document() for part in parts],
        }
        json_file.write_text(json.dumps(document, indent=2) + "\n")


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
