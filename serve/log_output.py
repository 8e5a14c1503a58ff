"""Where log lines go, in batches, and what happens where they cannot be written."""

import io
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Final

from serve.errors import InvalidRequest
from serve.logs import (
    ACCESS_LOG,
    TRAIL,
    BurstFilter,
    LogFormat,
    LogLevel,
    fields_of,
    formatter,
    single_line,
)

# Takes whole lines; raises OSError where they cannot be written.
Write = Callable[[bytes], object]

FLUSH_EVERY_S = 0.25
# Lines that wait for an output that takes none; further ones are counted and left out.
MAX_WAITING = 10_000
# The end of the process waits at most this long for the output.
_LAST_FLUSH_S = 1.0
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_MOST_PRINTED_CHARS: Final = 8192


class Output:
    """Writes lines of several threads. Those that cannot be written are counted.

    The first failure is told on stderr, and the number of lost lines where lines can be written
    again.
    """

    def __init__(self, write: Write, log_format: LogFormat) -> None:
        """Write with a function, lines of this format."""
        self.log_format, self._write = log_format, write
        self._writing = threading.Lock()
        self._num_lost, self._fails = 0, False

    def write(self, lines: bytes) -> None:
        """Write whole lines; wait while the output takes none."""
        with self._writing:
            lost = self._num_lost
            told = self._own_line("log lines were lost", lost=lost) if lost else b""
            try:
                self._write(told + lines)
            except OSError as error:
                self._num_lost += lines.count(b"\n")
                if not self._fails:
                    self._complain(error)
                self._fails = True
            else:
                self._num_lost, self._fails = 0, False

    def lose(self, number: int) -> None:
        """Count lines that nothing could take."""
        with self._writing:
            self._num_lost += number

    def _complain(self, error: OSError) -> None:
        why = error.strerror or str(error)
        with suppress(OSError, ValueError):  # stderr may be what fails
            write_stderr(self._own_line("log lines cannot be written", why=why))

    def _own_line(self, message: str, **values: Any) -> bytes:
        return f"{single_line(self.log_format, logging.ERROR, message, **values)}\n".encode()


class BatchedHandler(logging.Handler):
    """Passes lines on in batches: after an error at once, after other lines in `FLUSH_EVERY_S`.

    Its own thread formats and writes. So a log line costs the caller little, and an output that
    takes no more, such as a pipe without a reader, holds up no request.
    """

    def __init__(self, output: Output, always: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.setFormatter(formatter(output.log_format))
        self.addFilter(BurstFilter())
        self._output, self._always = output, dict(always or {})
        self._records: list[logging.LogRecord] = []
        self._num_lost = 0
        self._wanted, self._writing = threading.Event(), threading.Lock()
        threading.Thread(target=self._flush_for_ever, name="logs", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line; the caller holds the handler's lock."""
        if len(self._records) >= MAX_WAITING:
            self._num_lost += 1
            return
        self._records.append(record)
        if record.levelno >= logging.ERROR:
            self._wanted.set()

    def flush(self) -> None:
        """Write what has been taken, unless the output holds up the thread that writes."""
        if not self._writing.acquire(timeout=_LAST_FLUSH_S):
            return
        try:
            with self.lock or nullcontext():
                records, self._records = self._records, []
                num_lost, self._num_lost = self._num_lost, 0
            if num_lost:
                self._output.lose(num_lost)
            if records:
                lines = "".join([f"{self._line(record)}\n" for record in records])
                self._output.write(lines.encode(errors="backslashreplace"))
        finally:
            self._writing.release()

    def _line(self, record: logging.LogRecord) -> str:
        try:
            if self._always:
                record.__dict__["fields"] = {**fields_of(record), **self._always}
            return self.format(record)
        except Exception as error:
            return f"a log line of {record.pathname}:{record.lineno} has failed: {error!r}"

    def _flush_for_ever(self) -> None:
        while True:
            self._wanted.wait(FLUSH_EVERY_S)
            self._wanted.clear()
            self.flush()


def configure_logs(output: Output, level: LogLevel, **always: Any) -> BatchedHandler:
    """Send the server's own log lines to an output, and warnings of libraries too.

    Args:
        output: where all lines of this process go.
        level: level of the server's own least important lines.
        always: fields of every line.
    """
    batched = BatchedHandler(output, always)
    own, root = logging.getLogger("serve"), logging.getLogger()
    own.handlers = [batched]
    own.propagate = False
    own.setLevel(level.upper())
    for name in (ACCESS_LOG, TRAIL):  # what is asked for, and what is owed, at any level
        logging.getLogger(name).setLevel(logging.INFO)
    others = [handler for handler in root.handlers if not isinstance(handler, BatchedHandler)]
    root.handlers = [*others, batched]
    return batched


class Printed(io.TextIOBase):
    """Stands for stdout or stderr: every line that is printed there is logged as a warning."""

    def __init__(self) -> None:
        self._begun, self._writing = "", threading.Lock()

    def write(self, text: str) -> int:
        """Log the lines that are complete now."""
        with self._writing:
            *lines, self._begun = (self._begun + text).split("\n")
            if len(self._begun) > _MOST_PRINTED_CHARS:
                lines, self._begun = [*lines, self._begun], ""
        for line in lines:
            if plain := _COLOURS.sub("", line).strip():
                logging.getLogger(__name__).warning("%s", plain[:_MOST_PRINTED_CHARS])
        return len(text)

    def writable(self) -> bool:
        return True


@contextmanager
def logging_to(output: Output, level: LogLevel) -> Iterator[BatchedHandler]:
    """Send log lines to an output until the block is left, and what libraries print."""
    own, root = logging.getLogger("serve"), logging.getLogger()
    before = own.handlers, own.propagate, own.level, root.handlers
    hook, handler = threading.excepthook, configure_logs(output, level)
    logging.captureWarnings(True)
    threading.excepthook = _log_failed_thread
    try:
        with redirect_stdout(Printed()), redirect_stderr(Printed()):
            yield handler
    finally:
        handler.flush()
        logging.captureWarnings(False)
        threading.excepthook = hook
        own.handlers, own.propagate, own.level, root.handlers = before


def write_stderr(lines: bytes) -> None:
    """Write to this process's stderr, if it has one."""
    if sys.__stderr__:
        file, left = sys.__stderr__.fileno(), memoryview(lines)
        while left:
            left = left[os.write(file, left) :]


def _log_failed_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value:
        logging.getLogger(__name__).error("a thread has failed", exc_info=failed.exc_value)


# In the name of a file: the replica that writes.
_REPLICA: Final = "{replica}"


class LogFile(WatchedFileHandler):
    """A file that is opened again when its name stands for another one, as logrotate makes it.

    A batch of lines is one write at the end of the file, which on a local disk no other process
    interrupts.
    """

    def _open(self) -> Any:
        # A pipe that nothing reads would hang the start.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        file = os.open(self.baseFilename, flags, 0o666)
        os.set_blocking(file, True)
        return open(file, "ab", buffering=0)

    def write(self, lines: bytes) -> None:
        """Append lines.

        Raises:
            OSError: not all of them were written.
        """
        self.reopenIfNeeded()
        file: Any = self.stream
        left = memoryview(lines)
        while left:
            left = left[file.write(left) :]


def log_output(path: Path | None, replica: str = "") -> Write:
    """Return what takes log lines: a file, or stderr.

    Args:
        path: the file's path, with the replica's name in the place of `{replica}`; None for stderr.
        replica: the replica's name.

    Raises:
        InvalidRequest: the file cannot be written to.
    """
    if path is None:
        return write_stderr
    if _REPLICA in str(path) and not replica:
        raise InvalidRequest(
            f"the log file {path} has lines of all replicas here: leave out {_REPLICA}"
        )
    try:
        return LogFile(str(path).replace(_REPLICA, replica)).write
    except OSError as error:
        raise InvalidRequest(
            f"the log file {path} cannot be written to: {error.strerror}; choose another with "
            "`--log-file` (`log_file`), or leave it out for stderr"
        ) from None
