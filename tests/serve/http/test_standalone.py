"""`offramp serve --standalone` as a process."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.serve.support.live_server import Problem
from tests.serve.support.server_process import (
    ServerProcess,
    run_offramp,
    statuses_of_requests_in_flight_at,
)
from tests.support.patience import until

StartProcess = Callable[..., ServerProcess]


@pytest.fixture
def start_process() -> Iterator[StartProcess]:
    """Start standalone servers on free ports."""
    with ExitStack() as stack:

        def start(*arguments: str | Path) -> ServerProcess:
            process = ServerProcess(*arguments, "--standalone", "--port", "0")
            return stack.enter_context(process)

        yield start


@pytest.fixture(scope="module")
def started(bundle_folder: Path) -> Iterator[ServerProcess]:
    limits = '{"connections": {"max_head_bytes": 5000}}'
    options = ("--standalone", "--port", "0", "--limits", limits)
    with ServerProcess(bundle_folder, *options) as process:
        yield process


def test_loaded_model_is_announced(started: ServerProcess) -> None:
    started.curl_line()
    announced = started.output.splitlines()[0]
    assert announced.startswith("tiny: 4 layers, exits at 1, 2, 3, 4, ")
    assert ", labels negative, neutral, positive, at most 64 tokens, bundle " in announced


def test_models_that_are_served_after_a_crash_are_those_that_are_announced(
    start_process: StartProcess, bundle_folder: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(bundle_folder, tmp_path / "other")
    asked = (other, bundle_folder, "--state", tmp_path / "state")
    first = start_process(*asked)
    first.client().http.post("/v1/models/other/unload").raise_for_status()
    os.kill(first.pid, signal.SIGKILL)
    first.exit_status()
    again = start_process(*asked)
    served = again.client().http.get("/v1/models").json()["models"]
    lines = again.output.splitlines()
    named = [line.split(":")[0] for line in lines if "layers, exits at" in line]
    assert named == [each["name"] for each in served] == ["tiny"]
    assert '"model"' not in again.curl_line()


def test_printed_curl_line_works(started: ServerProcess) -> None:
    command = started.curl_line()
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    answered = subprocess.run(command, shell=True, capture_output=True, check=True).stdout
    assert json.loads(answered)["model"] == "tiny"


def test_taken_port_is_a_clear_error(started: ServerProcess, bundle_folder: Path) -> None:
    port = str(started.client().port)
    status, _, error = run_offramp("serve", bundle_folder, "--standalone", "--port", port)
    assert status == 2
    assert error == (
        f"offramp: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "choose another port or host\n"
    )


def test_nothing_else_listens(started: ServerProcess) -> None:
    port = started.client().port
    others = [address for address in ("127.0.0.2", "127.1.1.1") if _listens(address, port)]
    assert not others


def test_bound_on_connections_holds_that_the_command_was_given(started: ServerProcess) -> None:
    answer = started.client().http.get("/health/live", headers={"X": "x" * 6000})
    assert Problem.of(answer)[:2] == (431, "head_too_large")


_WHEN_READY = """
import gc, os, signal, sys
from serve.config import ServerConfig
from serve.http.listener import take_port
from serve.standalone import serve_standalone

def ready():
    print(gc.get_freeze_count())
    os.kill(os.getpid(), signal.SIGTERM)

serve_standalone(ServerConfig(bundles=[sys.argv[1]]), take_port("127.0.0.1", 0), ready)
"""


def test_objects_of_the_server_are_none_of_the_garbage_collector_s(bundle_folder: Path) -> None:
    command = [sys.executable, "-c", _WHEN_READY, str(bundle_folder)]
    said = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    assert int(said) > 50_000


def test_connection_that_was_idle_for_a_while_is_still_open(started: ServerProcess) -> None:
    """Clients and load balancers reuse a connection after up to a minute."""
    with closing(HTTPConnection("127.0.0.1", started.client().port)) as connection:
        assert _alive(connection)
        # uvicorn's default is 5 s.
        assert select.select([connection.sock], [], [], 7.0) == ([], [], [])
        assert _alive(connection)


def _alive(connection: HTTPConnection) -> bool:
    connection.request("GET", "/health/live")
    with connection.getresponse() as response:
        response.read()
        return response.status == 200


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_requests_in_flight_are_answered_before_the_end(
    start_process: StartProcess, bundle_folder: Path, number: signal.Signals
) -> None:
    process = start_process(bundle_folder)
    assert statuses_of_requests_in_flight_at(number, process) == [200] * 8
    assert process.exit_status() == 0
    assert process.output.splitlines()[-1] == "stopped"
    assert "Traceback" not in process.output
    assert not process.left()


def test_one_core_no_temporary_folder_and_a_full_log_disk_are_enough(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/proc")  # not even root can write there
    full = ("sh", "-c", 'exec "$@" 2> /dev/full', "sh")
    options = ("--standalone", "--port", "0", "--access-log", "--log-format", "json")
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with ServerProcess(bundle_folder, *options, through=full) as process:
            server = process.client()
            assert len(server.answer(["w1", "w2 w3"] * 20)["results"]) == 40
            assert server.http.put("/v1/models/tiny/policy", json={}).status_code == 422
            process.send(signal.SIGTERM)
            assert process.exit_status() == 0
            assert json.loads(process.output.splitlines()[-1])["message"] == "stopped"
            assert not process.left()
    finally:
        os.sched_setaffinity(0, allowed)


def test_several_bundles_are_served_and_an_idle_server_stops_at_once(
    start_process: StartProcess, bundle_copy: Callable[..., Path]
) -> None:
    process = start_process(bundle_copy("one"), bundle_copy("two"), "--precision", "fp32")
    assert '"model": "one"' in process.curl_line()
    server = process.client()
    assert [m["name"] for m in server.http.get("/v1/models").json()["models"]] == ["one", "two"]
    assert {m["precision"] for m in server.http.get("/v1/models").json()["models"]} == {"fp32"}
    process.send(signal.SIGINT)
    until(lambda: "stopped" in process.output)
    while process.status(0.001) is None:
        process.send(signal.SIGINT)  # an impatient hand changes nothing any more
    assert process.exit_status() == 0
    assert not process.left()
