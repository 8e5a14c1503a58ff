"""One scenario: a load on a server, an event, and what was found."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loadtest.chaos.explanations import Event
from loadtest.http.client import Client, Json
from loadtest.http.server_process import ServerProcess
from loadtest.load.load_process import LoadProcess
from serve.errors import OfframpError

BEFORE_S = 3.0  # of undisturbed load
_POLL_S = 0.1


class NotSeen(OfframpError):
    """An expected event did not happen in time."""


@dataclass
class Scenario:
    """One scenario and its findings."""

    event: Event
    server: ServerProcess
    per_second: float  # rate of the load
    seconds: float  # length of the load
    folder: Path  # for the load's report
    report: Json = field(default_factory=dict)  # of the load, once it is over
    notes: list[str] = field(default_factory=list)  # observations, in words
    problems: list[str] = field(default_factory=list)  # what should not have happened

    @property
    def client(self) -> Client:
        """A client of the server."""
        return Client(self.server.url, timeout_s=10.0)

    @property
    def model(self) -> Json:
        """The served model, as /v1/models describes it."""
        (model,) = self.client.models()
        return model

    def processes(self, role: str) -> set[psutil.Process]:
        """Return those of the server's processes that have this role in Ray's name for them."""
        return self.server.family.titled(role)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Load the server, run the block after `BEFORE_S`, and wait for the load's end."""
        rate = ["--arrivals", "poisson", "--rate", f"{self.per_second:g}", "--users", "4"]
        words = [*rate, "--retries", "1", "--weights", "default=1"]
        folder = self.folder / self.event.replace(" ", "-")
        with LoadProcess(self.server.url, self.seconds, words, folder) as load:
            wait_for(lambda: load.sending, "the load begins")
            time.sleep(BEFORE_S)
            yield
            self.report = load.report()

    def expect(self, holds: bool, otherwise: str) -> None:
        """Add a problem unless the condition holds."""
        if not holds:
            self.problems.append(otherwise)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 90.0) -> float:
    """Wait until a condition holds, and return the seconds that took.

    Raises:
        NotSeen: it did not hold in time.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise NotSeen(f"{what}: not within {timeout_s:g} s")
        time.sleep(_POLL_S)
    return time.monotonic() - began
