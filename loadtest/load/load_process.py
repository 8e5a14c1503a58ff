"""A load test in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from loadtest.http.client import Json
from loadtest.http.interruption import held_back
from loadtest.http.server_process import start_in_session
from serve.errors import OfframpError

_FINISH_S = 60.0


class LoadFailed(OfframpError):
    """The load test wrote no report; the message has its output."""


class LoadProcess:
    """A load test that runs during its block; `report` waits for its end."""

    def __init__(self, url: str, seconds: float, words: Sequence[str], folder: Path) -> None:
        """Prepare.

        Args:
            url: of the server.
            seconds: length of the load test.
            words: more options for `loadtest.load`.
            folder: for its report and its output.
        """
        self._limit_s = seconds + _FINISH_S
        self._report = folder / "report.json"
        self._log = folder / "output.txt"
        self._command = [sys.executable, "-m", "loadtest.load", "--host", url]
        self._command += ["--seconds", f"{seconds:g}", "--no-metrics", "--out", str(folder)]
        self._command += words
        folder.mkdir(parents=True, exist_ok=True)
        self._report.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        with held_back(), self._log.open("wb") as log:
            self._process = start_in_session(self._command, log)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()

    @property
    def sending(self) -> bool:
        """Whether users have been started."""
        return "users for" in self._log.read_text()

    def report(self) -> Json:
        """Wait for the end and return report.json.

        Raises:
            LoadFailed: there is no report.
        """
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self._limit_s)
        if not self._report.is_file():
            raise LoadFailed(f"the load test gave no report:\n{self._log.read_text()[-2000:]}")
        found: Json = json.loads(self._report.read_text())
        return found
