"""The users under Locust's own command."""

import sys
from pathlib import Path

from loadtest.http.server_process import ChildProcess, free_port
from tests.loadtest.conftest import StartFake

LOCUSTFILE = Path(__file__).parents[3] / "loadtest" / "load" / "locustfile.py"


def locust(*options: str) -> ChildProcess:
    return ChildProcess([sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), *options])


def test_workers_share_the_rate_of_their_master(start_fake: StartFake) -> None:
    server, port = start_fake(), str(free_port())
    arrivals = ("--arrivals", "constant", "--rate", "40", "--weights", "patience=1")
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
    assert {rule["rule"] for rule in server.rules} == {"patience"}
    assert 100 <= len(server.rules) <= 300
