"""The users under Locust's own command."""

import os
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

from loadtest.http.server_process import free_port
from loadtest.load.options import set_rate_per_user
from loadtest.load.user_mix import DEFAULT_WEIGHTS
from tests.loadtest.conftest import StartFake
from tests.support.patience import until

LOCUSTFILE = Path(__file__).parents[3] / "loadtest" / "load" / "locustfile.py"


def locust(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), *options]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=LOCUSTFILE.parents[2],
        env={**os.environ, "PYTHONPATH": str(LOCUSTFILE.parents[2])},
    )


def test_locusts_own_command_runs_the_users(start_fake: StartFake) -> None:
    server = start_fake()
    options = ("--headless", "--host", server.url, "-u", "2", "-r", "2", "-t", "1s")
    with locust(*options, "--weights", "patience=1") as process:
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0, printed
    assert "patience" in printed
    assert {rule["rule"] for rule in server.rules} == {"patience"}


def test_every_kind_of_user_is_in_the_file(start_fake: StartFake) -> None:
    options = ("--list", "--host", start_fake().url)
    with locust(*options) as process:
        printed, _ = process.communicate(timeout=120)
    listed = {line.strip() for line in printed.splitlines()}
    assert {f"{kind.capitalize()}User" for kind in DEFAULT_WEIGHTS} <= listed


def test_lost_worker_is_told_at_the_end(start_fake: StartFake) -> None:
    server = start_fake()
    port = str(free_port())
    master_options = ("--master", "--master-bind-port", port, "--expect-workers", "2")
    load = ("--headless", "--host", server.url, "-u", "2", "-r", "2", "-t", "20s")
    worker_options = ("--worker", "--master-host", "127.0.0.1", "--master-port", port)
    with (
        locust(*master_options, *load) as master,
        locust(*worker_options) as one,
        locust(*worker_options) as other,
    ):
        try:
            until(lambda: len(server.rules) >= 4)
            other.kill()
            printed, _ = master.communicate(timeout=120)
        finally:
            for process in (master, one, other):
                process.kill()
    assert "The load fell short: 1 of 2 workers were lost" in printed
    assert master.returncode == 1


def test_every_user_has_its_share_of_the_rate() -> None:
    options = Namespace(arrivals="poisson", rate=20.0, num_users=4)
    set_rate_per_user(options)
    assert options.rate_per_user == 5.0


def test_workers_have_their_share_from_their_master(start_fake: StartFake) -> None:
    server = start_fake()
    port = str(free_port())
    arrivals = ("--arrivals", "constant", "--rate", "40", "--weights", "default=1")
    master_options = ("--master", "--master-bind-port", port, "--expect-workers", "2")
    load = ("--headless", "--host", server.url, "-u", "4", "-r", "4")
    worker_options = ("--worker", "--master-host", "127.0.0.1", "--master-port", port)
    with (
        locust(*master_options, *load, *arrivals) as master,
        locust(*worker_options) as one,
        locust(*worker_options) as other,
    ):
        try:
            until(lambda: len(server.rules) >= 20)
            master.send_signal(signal.SIGTERM)
            printed, _ = master.communicate(timeout=120)
        finally:
            for process in (master, one, other):
                process.kill()
    assert "0(0.00%)" in printed
