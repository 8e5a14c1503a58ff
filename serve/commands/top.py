"""`offramp top`: what a running server does now, and has done in the last 15 minutes."""

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, NamedTuple

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from serve.commands.figures import Counts, Figures, Growth, Sample, between
from serve.commands.http_client import LOCAL, CallFailed, KeyFile, Server, TlsCa, TlsCert, Url
from serve.commands.terminal import plain

_BAR_WIDTH: Final = 24
_HEADINGS: Final = (
    *("", "req/s", "texts/s", "p50 ms", "p95 ms", "p99 ms"),
    *("layers", "saved", "errors/s", "queue ms"),
)


def screen(newest: Sample, recent: Sample, oldest: Sample, problem: str = "") -> RenderableType:
    """Return everything: `recent` is where now begins, `oldest` the last 15 minutes."""
    minutes = max(1, round((newest.at_s - oldest.at_s) / 60))
    past = "last minute" if minutes == 1 else f"last {minutes} min"
    few = newest.running < newest.wanted
    replicas = f"replicas {newest.running} of {newest.wanted}"
    parts: list[RenderableType] = [Text(replicas, "bold red" if few else "bold")]
    if problem:
        parts.append(Text(plain(problem), "red"))
    for name, counts in sorted(newest.models.items()):
        starts = {"now": recent} if oldest is recent else {"now": recent, past: oldest}
        found = ((span, between(start, newest, name)) for span, start in starts.items())
        # A model that was loaded later is not in the oldest sample.
        if spans := {span: figures for span, figures in found if figures}:
            heading = Text(plain(f"{name}  policy {counts.policy_version}"), "bold cyan")
            rows = [_row(span, counts, figures) for span, figures in spans.items()]
            parts += [
                Text(),
                heading,
                *_guarded(counts),
                _Rows([tuple(map(Text, _HEADINGS)), *rows]),
                _exits(spans),
            ]
    return Group(*parts)


def _guarded(counts: Counts) -> list[Text]:
    """Return what to do after the guardrail has acted: it loosens nothing by itself."""
    if not counts.by_guardrail:
        return []
    words = f"policy {counts.policy_version} is the guardrail's, see `offramp policy history`; "
    return [Text(f"{words}`offramp policy rollback VERSION` takes it back", "bold red")]


def _row(span: str, counts: Counts, figures: Figures) -> tuple[Text, ...]:
    values = (figures.requests_s, figures.texts_s, *figures.quantiles_ms, figures.layers)
    errors = _short(figures.refused_s + figures.failed_s)
    return (
        Text(span),
        *(Text(_short(value)) for value in values),
        Text(_share(figures.saved)),
        Text(errors, "bold red" if figures.failed_s else ""),
        Text(_short(1000 * counts.queue_s) if span == "now" else ""),
    )


class _Rows(NamedTuple):
    """A table whose rows become columns in a terminal that is too narrow for it."""

    rows: list[tuple[Text, ...]]  # the first has the headings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = _table(self.rows)
        fits = console.measure(wide, options=options.update(width=1000)).maximum
        yield wide if fits <= options.max_width else _table([*zip(*self.rows, strict=True)])


def _table(rows: Sequence[tuple[Text, ...]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in rows[0]:
        table.add_column(heading, justify="right" if table.columns else "left", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*row)
    return table


def _exits(spans: dict[str, Figures]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("exits at")
    for span in spans:
        table.add_column(span)
        table.add_column("", justify="right", min_width=5)
    for layer in sorted({layer for figures in spans.values() for layer in figures.exits}):
        shares = [figures.exits.get(layer, 0.0) for figures in spans.values()]
        bars = [ProgressBar(1, part, _BAR_WIDTH, complete_style="cyan") for part in shares]
        cells = [
            cell for bar, part in zip(bars, shares, strict=True) for cell in (bar, _share(part))
        ]
        table.add_row(str(layer), *cells)
    return table


def _share(part: float) -> str:
    return "-" if math.isnan(part) else f"{100 * part:.0f} %"


def _short(value: float) -> str:
    """Return a number with three digits that matter."""
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


_KEPT_S: Final = 15 * 60
_NOW_S: Final = 10  # what figures of now are the mean of


def top(
    url: Url = LOCAL,
    model: Annotated[
        str | None, typer.Option(help="Model to show, by name or alias. Default: all.")
    ] = None,
    key_file: KeyFile = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    interval: Annotated[float, typer.Option(help="Seconds between looks.", min=0.1, max=60)] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print the figures of one interval, and end.")
    ] = False,
) -> None:
    """Show requests, latency, exits and queue of a running server until Ctrl-C."""
    server, console = Server.at(url, key_file, tls_ca, tls_cert), Console(highlight=False)
    growth = Growth()
    samples = deque([_sample(server, growth, model)])
    if once:
        time.sleep(interval)
        samples.append(_sample(server, growth, model))
        console.print(screen(samples[-1], samples[0], samples[0]))
        return
    problem = ""
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            live.update(screen(samples[-1], _recent(samples), samples[0], problem), refresh=True)
            time.sleep(interval)
            try:
                samples.append(_sample(server, growth, model))
                problem = ""
            except CallFailed as failed:
                problem = str(failed)
            while samples[-1].at_s - samples[0].at_s > _KEPT_S:
                samples.popleft()


def _sample(server: Server, growth: Growth, model: str | None) -> Sample:
    """Return what is counted now, of one model or of all that are served.

    Raises:
        CallFailed: the server does not answer, or does not serve this model.
    """
    try:
        sample = growth.read(server.metrics(), time.monotonic())
    except (LookupError, TypeError, ValueError):
        raise server.stranger() from None
    served = {name: counts for name, counts in sample.models.items() if counts.served}
    if model is not None:
        name = sample.aliases.get(model, model)
        if name not in served:
            known = ", ".join(sorted(served)) or "none"
            raise CallFailed(f"no model {model} is served; there are {known}", 1)
        served = {name: served[name]}
    return replace(sample, models=served)


def _recent(samples: deque[Sample]) -> Sample:
    """Return where now begins."""
    start_s = samples[-1].at_s - _NOW_S
    return next((each for each in reversed(samples) if each.at_s <= start_s), samples[0])
