"""`python -m loadtest.simulator`: the scheduler on devices and under loads that are not at hand."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loadtest.http.client import Json
from loadtest.http.console import print_text, run_typed
from loadtest.simulator.contenders import CONTENDERS, ENGINE, WHOLE, Scenario
from loadtest.simulator.devices import PRESETS, read_device
from loadtest.simulator.traffic import Traffic, read_mix
from models.quality.page import table

_BOUND_TIMES, _SEED = 5.0, 0


def simulate(
    cost: Annotated[
        str,
        typer.Option(help=f"{', '.join(PRESETS)}, or measured:FILE of the GPU check."),
    ] = "h100",
    layers: Annotated[int, typer.Option(help="Segments of the model.", min=1, max=96)] = 12,
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
    max_rows: Annotated[
        int | None,
        typer.Option(help="Rows in a batch.", min=1, show_default="the server's on the device"),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Rows times longest row.", min=1, show_default="as for --max-rows"),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
) -> None:
    """Compare the engine's scheduler with batches of the whole model, on simulated devices.

    Both get the same requests, the same costs and the same limits on a batch. Two runs give the
    same figures.
    """
    device = read_device(cost, layers)
    limits = replace(
        device.limits,
        max_rows=max_rows or device.limits.max_rows,
        max_tokens=max_tokens or device.limits.max_tokens,
    )
    traffics = [
        Traffic(read_mix(mix, layers)) for mix in exits or ["deebert:5", f"uniform:2-{layers}"]
    ]
    scenario = Scenario(device, limits, requests, _SEED, _BOUND_TIMES)
    with Console(stderr=True).status("simulating"):
        parts = [simulated(scenario, traffic) for traffic in traffics]
    print_text(Console(), parts_table(parts))
    if json_file:
        document = {"device": asdict(device), "limits": asdict(limits), "parts": parts}
        json_file.write_text(json.dumps(document, indent=2) + "\n")


def simulated(scenario: Scenario, traffic: Traffic) -> Json:
    """Return what every contender can do with one mix of exits."""
    capacity = {name: scenario.capacity(name, traffic) for name in CONTENDERS}
    return {
        "mix": traffic.mix.name,
        "mean_exit": traffic.mix.mean,
        "bound_ms": 1000 * scenario.bound_s(traffic),
        # Answers per second when saturated, and the highest rate whose p99 keeps the bound.
        "capacity": capacity,
        "sustainable": {
            name: scenario.sustainable(name, traffic, most) for name, most in capacity.items()
        },
    }


def parts_table(parts: Sequence[Json]) -> str:
    """Return both contenders' rates and their ratio."""
    rows: list[list[Any]] = []
    for part in parts:
        bound = f"p99 within {part['bound_ms']:.1f} ms"
        for what, rates in ("saturated", part["capacity"]), (bound, part["sustainable"]):
            ratio = rates[ENGINE] / rates[WHOLE] if rates[WHOLE] else None
            rows.append([part["mix"], what, *rates.values(), ratio])
    return table(("exits", "requests/s", *CONTENDERS, "ratio"), rows)


if __name__ == "__main__":
    sys.exit(run_typed("simulation", simulate))
