"""`--log-format json`: every line that the command writes is one JSON object."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.support.live_server import LiveServer
from tests.serve.support.server_process import ServerProcess, run_offramp

POLICY = "/v1/models/tiny/policy"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("/nowhere", "--standalone"), "no such folder"),
        (("/nowhere", "--port", "nope"), "valid integer"),
        (("/nowhere", "--no-such-option"), "No such option"),
        ((), "Missing argument"),
        (("/nowhere", "--host", "0.0.0.0"), "give --keys FILE"),
        (("/nowhere", "--log-file", "/no/such/folder.log"), "log file /no/such/folder.log"),
        (("/nowhere", "--trusted-proxies", "10.0.0.0/8,proxy"), "'proxy' is no address"),
    ],
)
def test_what_is_wrong_at_the_start_is_one_line_of_json(
    arguments: tuple[str, ...], reason: str
) -> None:
    how = ("--log-format=json",) if arguments else ("--log-format", "json")
    status, said, complained = run_offramp("serve", *how, *arguments)
    assert (status, said) == (2, "")
    [line] = map(json.loads, complained.splitlines())
    assert line["level"] == "error"
    assert reason in line["message"]


class Lines:
    """What a server writes, to the terminal and to the log."""

    def __init__(self, process: ServerProcess, log: Path | None = None) -> None:
        self._process, self._log = process, log

    def __iter__(self) -> Iterator[dict[str, Any]]:
        written = self._process.output + (self._log.read_text() if self._log else "")
        return map(json.loads, written.splitlines())

    def named(self, message: str) -> list[dict[str, Any]]:
        return [line for line in self if line["message"].startswith(message)]


@pytest.mark.parametrize(
    ("mode", "to_file"),
    [
        (("--standalone",), False),
        (("--standalone",), True),
        pytest.param(("--replicas", "2"), False, marks=pytest.mark.ray),
    ],
)
def test_lines_of_all_replicas_outlive_a_clean_stop(
    bundle_folder: Path, tmp_path: Path, mode: tuple[str, ...], to_file: bool
) -> None:
    log = tmp_path / "offramp.log"
    log.touch()
    where = ("--log-file", str(log)) if to_file else ()
    options = ("--port", "0", "--log-format", "json", "--access-log", "--log-level", "error")
    with ServerProcess(bundle_folder, *mode, *options, *where) as process:
        lines = Lines(process, log if to_file else None)
        [ready] = process.started(lambda: lines.named("serving on "))
        with LiveServer(int(ready["url"].rpartition(":")[2])).http as http:
            for number in range(8):
                fresh = {"Connection": "close", "X-Request-Id": f"request {number}"}
                assert http.post("/v1/classify", json={"inputs": "w1"}, headers=fresh).is_success
            policy = {"default": {"rule": "never"}}
            assert http.put(POLICY, json={"policy": policy, "version": None}).is_success
            assert http.put(POLICY, json={"policy": policy, "version": 9}).status_code == 409
        process.send(signal.SIGTERM)
        assert process.exit_status() == 0
        [changed] = lines.named("policy changed")
        assert (changed["client"], changed["to_version"]) == ("127.0.0.1", 2)
        assert ("replica" in changed) == (mode != ("--standalone",))
        assert lines.named("change of a policy refused")
        asked = {line["id"] for line in lines.named("request") if line["status"] == 200}
        assert asked >= {f"request {number}" for number in range(8)}
        assert lines.named("stopped")
        if to_file:
            assert not [line for line in Lines(process) if "id" in line]
