"""`offramp top`: what a running server does now, and has done in the last 15 minutes."""

import time
from collections import deque
from dataclasses import replace
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live

from serve.commands.figures import Sample, read_sample
from serve.commands.http_client import LOCAL, CallFailed, KeyFile, Server, TlsCa, TlsCert, Url
from serve.commands.live_screen import screen

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
    samples = deque([_sample(server, model)])
    if once:
        time.sleep(interval)
        samples.append(_sample(server, model))
        console.print(screen(samples[-1], samples[0], samples[0]))
        return
    problem = ""
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            live.update(screen(samples[-1], _recent(samples), samples[0], problem), refresh=True)
            time.sleep(interval)
            try:
                samples.append(_sample(server, model))
                problem = ""
            except CallFailed as failed:
                problem = str(failed)
            while samples[-1].at_s - samples[0].at_s > _KEPT_S:
                samples.popleft()


def _sample(server: Server, model: str | None) -> Sample:
    """Return what is counted now, of one model or of all that are served.

    Raises:
        CallFailed: the server does not answer, or does not serve this model.
    """
    sample = read_sample(server.metrics(), time.monotonic())
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
