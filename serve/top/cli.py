"""`offramp top`: what a running server does now, and has done in the last 15 minutes."""

import os
import time
from collections import deque
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from serve.policy_cli.server import CallFailed, Server, read_key, read_tls
from serve.top.figures import Sample, read_sample
from serve.top.shown import screen

_KEPT_S: Final = 15 * 60
_NOW_S: Final = 10  # what figures of now are the mean of


class Watch:
    """Asks a server for its metrics again and again.

    Attributes:
        samples: of the last 15 minutes, oldest first.
        problem: why the newest is missing; empty if it is not.
    """

    def __init__(self, server: Server) -> None:
        """Take the first sample.

        Raises:
            CallFailed: the server does not answer.
        """
        self._server = server
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
        return read_sample(self._server.text("/metrics"), time.monotonic())


def top(
    url: Annotated[
        str, typer.Option(envvar="OFFRAMP_URL", help="Where the server is.")
    ] = "http://127.0.0.1:8000",
    key_file: Annotated[
        Path | None, typer.Option(help="File with the API key. Default: OFFRAMP_KEY.")
    ] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(exists=True, help="PEM file of authorities to trust.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(exists=True, help="PEM file: certificate and its key.")
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between looks.", min=0.1, max=60)] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print the figures of one interval, and end.")
    ] = False,
) -> None:
    """Show requests, latency, exits and queue of a running server until Ctrl-C."""
    key = read_key(key_file, os.environ.get("OFFRAMP_KEY", ""))
    watch, console = Watch(Server(url, key, read_tls(tls_ca, tls_cert))), Console(highlight=False)
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
