"""A load test's figures as tables."""

from rich.console import Console
from rich.table import Table

from loadtest.http.console import complain
from loadtest.http.exit_counts import ExitCounts, mean_layer
from loadtest.load.figures import Figures, Latency
from loadtest.load.ramp_table import steps_text

_BAR_CELLS = 24
_MOST_ERRORS = 10


def show(figures: Figures, console: Console) -> None:
    """Print latencies by kind of request, exits by layer, and errors if there were any."""
    console.print(_latencies(figures))
    console.print(_exits(figures.seen))
    console.print(
        f"mean exit layer {mean_layer(figures.seen):.2f}; {figures.seen.total()} answers, "
        f"{figures.counted.total()} exits counted by the server"
        if figures.metered
        else f"mean exit layer {mean_layer(figures.seen):.2f}; {figures.seen.total()} answers"
    )
    if figures.ramped:
        ramped = figures.ramped
        text = steps_text(ramped.steps, ramped.knee, ramped.reason)
        console.print(text, highlight=False, markup=False)
    for message, times in list(figures.errors.items())[:_MOST_ERRORS]:
        complain(console, f"{times} x {message}")


def _latencies(figures: Figures) -> Table:
    table = Table(title="Requests")
    table.add_column("kind")
    for heading in ("requests", "failed", "p50 ms", "p95 ms", "p99 ms", "per second"):
        table.add_column(heading, justify="right")
    for kind in figures.kinds:
        table.add_row(*_cells(kind.kind, kind))
    table.add_section()
    table.add_row(*_cells("all", figures.total))
    return table


def _cells(kind: str, found: Latency) -> list[str]:
    times = (found.p50_ms, found.p95_ms, found.p99_ms)
    counts = (found.requests, found.failures)
    return [kind, *map(str, counts), *(f"{ms:.0f}" for ms in times), f"{found.per_second:.1f}"]


def _exits(seen: ExitCounts) -> Table:
    table = Table(title="Where texts left")
    table.add_column("layer", justify="right")
    table.add_column("answers", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    table.add_column("reasons")
    for layer in sorted({out.layer for out in seen}):
        here = {out.reason: n for out, n in sorted(seen.items()) if out.layer == layer}
        share = sum(here.values()) / seen.total()
        reasons = ", ".join(f"{n} {reason}" for reason, n in here.items())
        bar = "█" * round(share * _BAR_CELLS)
        table.add_row(str(layer), str(sum(here.values())), f"{share:.1%}", bar, reasons)
    return table
