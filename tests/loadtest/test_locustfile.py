"""The users under Locust's own command."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from loadtest.server import free_port
from tests.loadtest.conftest import StartFake

LOCUSTFILE = Path(__file__).parents[2] / "loadtest" / "locustfile.py"


def locust(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), *options]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=LOCUSTFILE.parents[1],
        env={**os.environ, "PYTHONPATH": str(LOCUSTFILE.parents[1])},
    )


def test_locusts_own_command_runs_the_users(start_fake: StartFake) -> None:
    server = start_fake()
    options = ("--headless", "--host", server.url, "-u", "2", "-r", "2", "-t", "1s")
    with locust(*options, "--weights", "patience=1") as process:
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0, printed
    assert "patience" in printed
    assert {rule["rule"] for rule in server.rules} == {"patience"}


def test_workers_share_the_rate_of_their_master(start_fake: StartFake) -> None:
    server = start_fake()
    port = str(free_port())
    arrivals = ("--arrivals", "constant", "--rate", "20")
    master_options = ("--master", "--master-bind-port", port, "--expect-workers", "2")
    load = ("--headless", "--host", server.url, "-u", "4", "-r", "4", "-t", "3s")
    worker_options = ("--worker", "--master-host", "127.0.0.1", "--master-port", port)
    with (
        locust(*master_options, *load, *arrivals, "--weights", "default=1") as master,
        locust(*worker_options) as one,
        locust(*worker_options) as other,
    ):
        try:
            printed, _ = master.communicate(timeout=120)
        finally:
            for process in (master, one, other):
                process.send_signal(signal.SIGTERM)
    assert master.returncode == 0, printed
    assert 30 <= len(server.rules) <= 100, "20 a second for three seconds, not 20 for each worker"
