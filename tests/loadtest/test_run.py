"""Locust patches the standard library for gevent, so it runs in a process of its own."""

import subprocess
import sys

import pytest

from loadtest.server import HOST, free_port
from tests.loadtest.conftest import StartFake
from tests.loadtest.fake_server import FakeServer


def load(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadtest.run", "--host", url, "--seconds", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def answers(server: FakeServer) -> str:
    return f"{server.exits.total()} answers, {server.exits.total()} exits counted by the server"


def test_report_has_percentiles_and_exits_that_add_up(start_fake: StartFake) -> None:
    server = start_fake()
    done = load(server.url)
    assert done.returncode == 0, done.stdout + done.stderr
    words = ["p50 ms", "p95 ms", "p99 ms", "per second", "Where texts left", answers(server)]
    assert [word for word in words if word not in done.stdout] == []
    assert server.exits.total() > 0


def test_rule_of_the_command_line_goes_with_every_request(start_fake: StartFake) -> None:
    server = start_fake()
    done = load(server.url, "--exit", '{"rule": "layer", "layer": 2}')
    assert done.returncode == 0, done.stdout + done.stderr
    assert {rule["rule"] for rule in server.rules} == {"layer"}


def test_failed_request_makes_the_run_fail(start_fake: StartFake) -> None:
    done = load(start_fake("refuses batches").url)
    assert done.returncode == 1
    assert "requests failed" in done.stdout
    assert "at most one text" in done.stdout


@pytest.mark.parametrize("fault", ["hangs up", "drops a result"])
def test_reply_that_is_no_answer_makes_the_run_fail(start_fake: StartFake, fault: str) -> None:
    done = load(start_fake(fault).url)
    assert done.returncode == 1
    assert "requests failed" in done.stdout


def test_exits_that_do_not_add_up_make_the_run_fail(start_fake: StartFake) -> None:
    done = load(start_fake("forgets to count").url)
    assert done.returncode == 1
    assert "the server did not count" in done.stdout


def test_server_that_is_not_there_makes_the_run_fail() -> None:
    done = load(f"http://{HOST}:{free_port()}")
    assert done.returncode == 1
    assert "the load test failed" in done.stdout
