"""One scenario: a load on a server, something that happens to it, and what was found."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from loadtest.chaos.explanations import Event
from loadtest.chaos.server_processes import Family, wait_for
from loadtest.http.client import Client, Json
from loadtest.load.load_process import Traffic

BEFORE_S = 3.0  # of undisturbed load


class Pace(NamedTuple):
    """How much is asked, and for how long."""

    per_second: float
    seconds: float


@dataclass
class Scene:
    """One scenario: a load, something that happens, and what was found.

    Attributes:
        event: what happens.
        url: of the server.
        family: its processes.
        pace: of the load.
        folder: for the load's report.
        report: of the load, once it is over.
        notes: what was seen, in words.
        problems: what should not have been.
    """

    event: Event
    url: str
    family: Family
    pace: Pace
    folder: Path
    report: Json = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def client(self) -> Client:
        """A client of the server."""
        return Client(self.url, timeout_s=10.0)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Ask for a while undisturbed, then let the block happen, and wait for the load's end."""
        rate = ["--arrivals", "poisson", "--rate", f"{self.pace.per_second:g}", "--users", "4"]
        words = [*rate, "--retries", "1", "--weights", "default=1"]
        folder = self.folder / self.event.replace(" ", "-")
        with Traffic(self.url, self.pace.seconds, words, folder) as traffic:
            wait_for(lambda: traffic.sending, "the load begins")
            time.sleep(BEFORE_S)
            yield
            self.report = traffic.report()

    def expect(self, holds: bool, otherwise: str) -> None:
        """Note a problem unless something holds."""
        if not holds:
            self.problems.append(otherwise)
