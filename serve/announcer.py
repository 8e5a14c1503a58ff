"""What `offramp serve` says on stdout: lines for people, or JSON like the log's."""

import logging
import sys
from contextlib import suppress
from typing import Any

from serve.logs import ESCAPED, LogFormat, fields, single_line

log = logging.getLogger(__name__)


class Announcer:
    """Says how the start and the end of a server go."""

    def __init__(self, log_format: LogFormat, in_log: bool = False) -> None:
        """Speak in this format; `in_log` if the log, which lies elsewhere, has it too."""
        self._log_format, self._in_log, self._stdout = log_format, in_log, sys.stdout

    def say(self, message: str, example: str = "", **values: Any) -> None:
        """Say one thing.

        Args:
            message: a sentence.
            example: a command to try.
            values: what programs may want of it.
        """
        if example:
            values["example"] = example
        if self._in_log:
            log.info(message, extra=fields(**values))
        self._print(logging.INFO, message, example, values)

    def warn(self, message: str) -> None:
        """Write a line into the log, and say it where the log lies elsewhere."""
        log.warning("%s", message)
        if self._in_log:
            self._print(logging.WARNING, message, "", {})

    def _print(self, level: int, message: str, example: str, values: dict[str, Any]) -> None:
        line = message.translate(ESCAPED) + (f"; try\n  {example}" if example else "")
        if self._log_format == "json":
            line = single_line("json", level, message, **values)
        with suppress(OSError):  # a full disk, or a reader that has gone, ends no server
            # At once: replicas' lines come to the same place, and `print` writes the end by itself.
            self._stdout.write(line + "\n")
            self._stdout.flush()
