"""A load test in a process of its own."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from loadtest.http.child_process import ChildProcess
from loadtest.http.client import Json
from serve.errors import OfframpError

_FINISH_S = 60.0


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
