import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from serve.announcer import Announcer
from serve.log_output import Output, configure_logs
from serve.logs import ACCESS_LOG, BURST, WINDOW_S, LogFormat, fields
from serve.policy.difference import difference
from tests.support.patience import until

LOGGER = logging.getLogger("serve.test")
FORGED = "x\n2026-01-01T00:00:00 ERROR forged"
# What terminals and other programs take for orders, or for the end of a line.
CONTROLS = "a\x1b[2Jb\x9b2Jc\rd\x85e\u2028f\u202eg\u2066h"


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("serve", None)]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


class Written(io.StringIO):
    """What was logged so far."""

    def getvalue(self) -> str:
        logging.getLogger("serve").handlers[0].flush()
        return super().getvalue()


def lines_of(log_format: LogFormat) -> Written:
    written = Written()
    configure_logs(Output(lambda lines: written.write(lines.decode()), log_format), "info")
    return written


def test_json_line_holds_message_and_fields() -> None:
    written = lines_of("json")
    LOGGER.info("policy %s", "changed", extra=fields(model="tiny", version=2))
    LOGGER.debug("left out")
    line = json.loads(written.getvalue())
    assert abs(datetime.fromisoformat(line.pop("time")) - datetime.now(UTC)) < timedelta(hours=1)
    assert line == {
        "level": "info",
        "logger": "serve.test",
        "message": "policy changed",
        "model": "tiny",
        "version": 2,
    }


@pytest.mark.parametrize("path", ["café", "caf\udce9"], ids=["unicode", "bytes of a file name"])
def test_json_line_takes_any_name_and_values_that_are_no_json(path: str) -> None:
    written = lines_of("json")
    LOGGER.info("failed", extra=fields(path=path, error=ValueError("why"), share=1e999))
    line = json.loads(written.getvalue())
    assert (line["path"], line["error"], line["share"]) == (path, "why", float("inf"))


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_client_cannot_forge_a_line(log_format: LogFormat) -> None:
    written = lines_of(log_format)
    LOGGER.info("request %s", FORGED, extra=fields(id=FORGED))
    assert written.getvalue().count("\n") == 1


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_control_characters_of_a_client_reach_no_terminal(log_format: LogFormat) -> None:
    written = lines_of(log_format)
    LOGGER.info("request %s", CONTROLS, extra=fields(id=CONTROLS))
    try:
        raise ValueError(CONTROLS + FORGED)
    except ValueError:
        LOGGER.exception("failed")
    line, *failed = written.getvalue().splitlines()
    assert all(each.isprintable() for each in (line, *failed))
    assert not any(line.startswith("2026-01-01") for line in failed)
    if log_format == "json":
        assert json.loads(line)["id"] == CONTROLS


def test_what_is_announced_of_a_bundle_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    Announcer("text").say(f"labels {CONTROLS}")
    assert capsys.readouterr().out.removesuffix("\n").isprintable()


def test_exception_is_written_with_its_trace() -> None:
    written = lines_of("json")
    try:
        raise ValueError("why")
    except ValueError:
        LOGGER.exception("failed")
    assert "ValueError: why" in json.loads(written.getvalue())["exception"]


def test_flood_of_equal_lines_becomes_a_burst_and_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr("serve.logs.time.monotonic", lambda: now_s)
    written = lines_of("json")
    for number in range(1000):
        LOGGER.error("request %d failed", number)
    LOGGER.error("something else")
    assert written.getvalue().count("\n") == BURST + 1
    now_s = WINDOW_S
    LOGGER.error("request %d failed", 1000)
    assert json.loads(written.getvalue().splitlines()[-1])["left_out"] == 1000 - BURST


def test_errors_are_written_at_once_and_other_lines_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    written = lines_of("text")
    LOGGER.info("soon")
    until(lambda: "soon" in io.StringIO.getvalue(written))
    monkeypatch.setattr("serve.log_output.FLUSH_EVERY_S", 3600.0)
    written = lines_of("text")
    LOGGER.error("now")
    until(lambda: "now" in io.StringIO.getvalue(written))


def test_access_log_is_never_cut() -> None:
    written = lines_of("json")
    for _ in range(2 * BURST):
        logging.getLogger(ACCESS_LOG).info("request")
    assert written.getvalue().count("\n") == 2 * BURST


def test_difference_names_what_changed_and_no_more() -> None:
    old = {"default": "a", "profiles": {"a": {"t": 1, "u": 2}, "b": {"t": 3}}, "limits": None}
    new = {"default": "a", "profiles": {"a": {"t": 2, "u": 2}, "c": {"t": 3}}}
    assert difference(old, new) == {
        "profiles.a.t": (1, 2),
        "profiles.b": ({"t": 3}, None),
        "profiles.c": (None, {"t": 3}),
    }
