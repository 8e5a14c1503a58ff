"""`offramp top`: what a running server does now, and has done in the last 15 minutes."""

import time
from collections import deque
from dataclasses import replace
from typing import Annotated, Final

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from serve.commands.figures import Sample, read_sample
from serve.commands.live_screen import screen
from serve.commands.server import LOCAL, CallFailed, KeyFile, Server, TlsCa, TlsCert, Url

_KEPT_S: Final = 15 * 60
_NOW_S: Final = 10  # what figures of now are the mean of


class Watch:
    """Asks a server for its metrics again and again.

    Attributes:
        samples: of the last 15 minutes, oldest first.
        problem: why the newest is missing; empty if it is not.
    """

    def __init__(self, server: Server, model: str | None = None) -> None:
        """Take the first sample, of one model or of all.

        Raises:
            CallFailed: the server does not answer, or does not serve this model.
        """
        self._server, self._model = server, model
        self.samples = deque([self._sample()])
        self.problem = ""

    def look(self) -> None:
        """Take one more sample, or note why that has failed."""
        try:
            newest = self._sample()
        except CallFailed as failed:
            self.problem = str(failed)
            return
        self.problem = ""
        self.samples.append(newest)
        while newest.at_s - self.samples[0].at_s > _KEPT_S:
            self.samples.popleft()

    @property
    def recent(self) -> Sample:
        """Where now begins."""
        start_s = self.samples[-1].at_s - _NOW_S
        return next(
            (each for each in reversed(self.samples) if each.at_s <= start_s), self.samples[0]
        )

    def _sample(self) -> Sample:
        sample = read_sample(self._server.metrics(), time.monotonic())
        served = {name: counts for name, counts in sample.models.items() if counts.served}
        if self._model is not None:
            name = sample.aliases.get(self._model, self._model)
            if name not in served:
                known = ", ".join(sorted(served)) or "none"
                raise CallFailed(f"no model {self._model} is served; there are {known}", 1)
            served = {name: served[name]}
        return replace(sample, models=served)


def top(
    url: Url = LOCAL,
    model: Annotated[
        str | None, typer.Option(help="Show this one of several, by name or alias. Default: all.")
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
    watch = Watch(Server.at(url, key_file, tls_ca, tls_cert), model)
    console = Console(highlight=False)
    if once:
        time.sleep(interval)
        watch.look()
        if watch.problem:
            raise CallFailed(watch.problem, 4)
        console.print(_screen(watch))
        return
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            live.update(_screen(watch), refresh=True)
            time.sleep(interval)
            watch.look()


def _screen(watch: Watch) -> RenderableType:
    return screen(watch.samples[-1], watch.recent, watch.samples[0], watch.problem)
