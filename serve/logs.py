"""Log lines: as JSON or as text, and without floods."""

import json
import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from textwrap import indent
from typing import Any, Literal

from pydantic_core import PydanticSerializationError, to_json

LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]

# Of equal lines, so many are written in a window; the next one says how many were left out.
BURST = 20
WINDOW_S = 10.0


def fields(**values: Any) -> dict[str, Any]:
    """Return the `extra` of a log call that adds fields to the line."""
    return {"fields": values}


def single_line(
    log_format: LogFormat,
    level: int,
    message: str,
    cause: BaseException | None = None,
    **values: Any,
) -> str:
    """Return a line that does not come from a logger."""
    line = logging.makeLogRecord(
        {
            "name": "serve",
            "levelname": logging.getLevelName(level),
            "msg": message,
            "exc_info": cause and (type(cause), cause, cause.__traceback__),
            "fields": values,
        }
    )
    return formatter(log_format).format(line)


def formatter(log_format: LogFormat) -> logging.Formatter:
    """Return what makes lines of records."""
    return JsonFormatter() if log_format == "json" else TextFormatter()


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        encoded = _to_json(line)
        return encoded if encoded.isascii() else encoded.translate(_ESCAPED_IN_JSON)


class TextFormatter(logging.Formatter):
    """Time, level, message and fields. Values are quoted, so that no client can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname, record.getMessage().translate(ESCAPED)]
        parts += [f"{name}={json.dumps(v, default=str)}" for name, v in fields_of(record).items()]
        line = " ".join(parts)
        if record.exc_info:
            # Indented, because the message of an exception may have what looks like a line.
            trace = self.formatException(record.exc_info).translate(_ESCAPED_IN_TRACES)
            line += "\n" + indent(trace, "  ", lambda _: True)
        return line


class BurstFilter(logging.Filter):
    """Lets `BURST` lines of one kind pass in `WINDOW_S`.

    Lines of the access log and of changes that were made always pass. Lines about the holder of a
    key are a kind of their own, so that strangers cannot crowd them out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[tuple[str, str, str], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name in (ACCESS_LOG, TRAIL):
            return True
        kind = record.name, str(record.msg), str(fields_of(record).get("key", ""))
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


ACCESS_LOG, TRAIL = "serve.access_log", "serve.trail"
_MAX_KINDS = 1000
# Control characters, of terminals too, what some programs take for the end of a line, and what
# turns the order of others round.
_UNSEEN = (*range(32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
ESCAPED = {code: ascii(chr(code))[1:-1] for code in _UNSEEN}
_ESCAPED_IN_TRACES = {code: text for code, text in ESCAPED.items() if code != ord("\n")}
_ESCAPED_IN_JSON = {code: f"\\u{code:04x}" for code in ESCAPED if code > 127}


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


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """Return what `fields` has added to a line."""
    found: Mapping[str, Any] = getattr(record, "fields", {})
    return found
