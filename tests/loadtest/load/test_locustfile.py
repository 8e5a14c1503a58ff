"""The users under Locust's own command."""

import sys
from pathlib import Path

from loadtest.http.server_process import ChildProcess, free_port
from tests.loadtest.conftest import StartFake

LOCUSTFILE = Path(__file__).parents[3] / "loadtest" / "load" / "locustfile.py"


def locust(*options: str) -> ChildProcess:
    return ChildProcess([sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), *options])


def test_locusts_own_command_runs_the_users(start_fake: StartFake) -> None:
    server = start_fake()
    options = ("--headless", "--host", server.url, "-u", "2", "-r", "2", "-t", "1s")
    with locust(*options, "--weights", "patience=1") as process:
        assert process.status(120) == 0, process.output
        assert "patience" in process.output
    assert {rule["rule"] for rule in server.rules} == {"patience"}


def test_workers_share_the_rate_of_their_master(start_fake: StartFake) -> None:
    server, port = start_fake(), str(free_port())
    arrivals = ("--arrivals", "constant", "--rate", "40", "--weights", "default=1")
    master_options = ("--master", "--master-bind-port", port, "--expect-workers", "2")
    load = ("--headless", "--host", server.url, "-u", "4", "-r", "4", "-t", "5s")
    worker_options = ("--worker", "--master-host", "127.0.0.1", "--master-port", port)
    with (
        locust(*master_options, *load, *arrivals) as master,
        locust(*worker_options),
        locust(*worker_options),
    ):
        assert master.status(120) == 0, master.output
        assert "0(0.00%)" in master.output
    assert 100 <= len(server.rules) <= 300
