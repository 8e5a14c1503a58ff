"""A wall clock that is set while the server answers."""

import datetime
import time
from pathlib import Path

import pytest

from tests.serve.api.conftest import StartServer
from tests.serve.support.keys import make_key
from tests.support.tiny import WORDS

TEXTS = [" ".join(WORDS[i : i + 40]) for i in range(8)]


@pytest.mark.parametrize("jump_s", [7200, -7200])
def test_a_wall_clock_that_is_set_changes_no_answer_limit_or_time_out(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    key = make_key(tmp_path, "admin")
    server = start_server(keys=tmp_path / "keys.json", access_log=True)
    server.http.headers["X-API-Key"] = key
    exit_rule = {"rule": "never"}

    def results() -> object:
        return server.answer(TEXTS, exit=exit_rule, timeout_ms=60_000)["results"]

    def jumped_ns() -> int:
        return now_ns() + jump_s * 10**9

    class Jumped(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Jumped":
            return cls.fromtimestamp(jumped_ns() / 1e9, tz)

    before = results()
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", jumped_ns)
    monkeypatch.setattr(time, "time", lambda: jumped_ns() / 1e9)
    monkeypatch.setattr(datetime, "datetime", Jumped)
    assert results() == before
    assert server.http.get("/health/ready").is_success
    for stage in ("queue", "segment"):
        spent_s = server.metric("offramp_stage_duration_seconds_sum", stage=stage)
        assert 0 <= spent_s < 3600
    assert 0 < server.metric("offramp_request_duration_seconds_sum") < 3600
