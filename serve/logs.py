"""Log lines: as JSON or as text, and without floods."""

import json
import logging
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from pydantic_core import PydanticSerializationError, to_json

LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]

# Of equal lines, so many are written in a window; the next one says how many were left out.
BURST = 20
WINDOW_S = 10.0

FLUSH_EVERY_S = 0.25


def fields(**values: Any) -> dict[str, Any]:
    """Return the `extra` of a log call that adds fields to the line."""
    return {"fields": values}


def configure_logs(handler: logging.Handler, log_format: LogFormat, level: LogLevel) -> None:
    """Send the server's own log lines to a handler, and to no other.

    The handler gets lines in batches, and its formatter is replaced.
    """
    batched = BatchedHandler(handler)
    batched.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    batched.addFilter(BurstFilter())
    for name in ("serve", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [batched]
        logger.propagate = False
    logging.getLogger("serve").setLevel(level.upper())


class BatchedHandler(logging.Handler):
    """Passes lines on in batches, an error at once and other lines after `FLUSH_EVERY_S`.

    A server that formats and writes every line by itself spends several times as long on it, since
    each write gives other threads the interpreter.
    """

    def __init__(self, target: logging.Handler) -> None:
        super().__init__()
        target.setFormatter(logging.Formatter())
        self._target = target
        self._records: list[logging.LogRecord] = []
        threading.Thread(target=self._flush_for_ever, name="logs", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line; the caller holds the handler's lock."""
        self._records.append(record)
        if record.levelno >= logging.ERROR:
            self.flush()

    def flush(self) -> None:
        """Write what has been taken."""
        with self.lock or nullcontext():
            records, self._records = self._records, []
            if records:
                lines = "\n".join(map(self._line, records))
                self._target.emit(logging.makeLogRecord({"msg": lines}))

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception as error:
            return f"a log line of {record.pathname}:{record.lineno} has failed: {error!r}"

    def _flush_for_ever(self) -> None:
        while True:
            time.sleep(FLUSH_EVERY_S)
            self.flush()


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _to_json(line)


class TextFormatter(logging.Formatter):
    """Time, level, message and fields. Values are quoted, so that no client can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname, record.getMessage().replace("\n", "\\n")]
        parts += [f"{name}={json.dumps(v, default=str)}" for name, v in _fields(record).items()]
        line = " ".join(parts)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class BurstFilter(logging.Filter):
    """Lets `BURST` lines of one kind pass in `WINDOW_S`. Lines of the access log always pass."""

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[tuple[str, str], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == ACCESS_LOG:
            return True
        kind = record.name, str(record.msg)
        window = self._windows.get(kind)
        now_s = time.monotonic()
        if window is None or now_s >= window.began_s + WINDOW_S:
            left_out = window.num_lines - BURST if window else 0
            if left_out > 0:
                record.__dict__.setdefault("fields", {})["left_out"] = left_out
            if len(self._windows) >= _MAX_KINDS:
                self._windows.clear()
            window = self._windows[kind] = _Window(now_s)
        window.num_lines += 1
        return window.num_lines <= BURST


ACCESS_LOG = "serve.access_log"
_MAX_KINDS = 1000


class _Window:
    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.num_lines = 0


def _to_json(line: Mapping[str, Any]) -> str:
    """Return JSON, in a third of the time that `json.dumps` takes."""
    try:
        return to_json(line, fallback=str).decode()
    except PydanticSerializationError:  # a lone surrogate, as in names of files
        return json.dumps(line, default=str)


def _time(record: logging.LogRecord) -> str:
    return f"{_to_the_second(int(record.created))}.{record.msecs:03.0f}+00:00"


@lru_cache(maxsize=4)
def _to_the_second(timestamp: int) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(record, "fields", {})
    return found
