"""One scenario: a load on a server, an event, and what was found."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loadtest.http.client import Client, Json
from loadtest.http.server_process import ChildProcess, ServerProcess
from serve.errors import OfframpError

BEFORE_S = 3.0  # of undisturbed load
_POLL_S = 0.1
_FINISH_S = 60.0


class NotSeen(OfframpError):
    """An expected event did not happen in time."""


class LoadFailed(OfframpError):
    """The load test wrote no report; the message has its output."""


class LoadProcess(ChildProcess):
    """A load test that runs during its block; `report` waits for its end."""

    def __init__(self, url: str, seconds: float, words: Sequence[str], folder: Path) -> None:
        """Prepare.

        Args:
            url: of the server.
            seconds: length of the load test.
            words: more options for `loadtest.load`.
            folder: for its report.
        """
        command = [sys.executable, "-m", "loadtest.load", "--host", url]
        command += ["--seconds", f"{seconds:g}", "--no-metrics", "--out", str(folder)]
        super().__init__([*command, *words])
        self._limit_s = seconds + _FINISH_S
        self._report = folder / "report.json"
        self._report.unlink(missing_ok=True)

    @property
    def sending(self) -> bool:
        """Whether users have been started."""
        return "users for" in self.output

    def report(self) -> Json:
        """Wait for the end and return report.json.

        Raises:
            LoadFailed: there is no report.
        """
        self.status(self._limit_s)
        if not self._report.is_file():
            raise LoadFailed(f"the load test gave no report:\n{self.last_lines()}")
        found: Json = json.loads(self._report.read_text())
        return found


@dataclass
class Scenario:
    """One scenario and its findings."""

    event: str
    server: ServerProcess
    per_second: float  # rate of the load
    seconds: float  # length of the load
    folder: Path  # for the load's report
    report: Json = field(default_factory=dict)  # of the load, once it is over
    notes: list[str] = field(default_factory=list)  # observations, in words
    problems: list[str] = field(default_factory=list)  # what should not have happened
    tables: list[str] = field(default_factory=list)  # more figures, as Markdown
    texts: tuple[str, ...] = ()  # options of the load: which texts are sent

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
        words = [*rate, "--retries", "1", "--weights", "default=1", *self.texts]
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
