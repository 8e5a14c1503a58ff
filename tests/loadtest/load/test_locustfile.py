"""The users under Locust's own command."""

import sys
from argparse import Namespace
from pathlib import Path

from loadtest.http.child_process import ChildProcess
from loadtest.http.server_process import free_port
from loadtest.load.options import set_rate_per_user
from loadtest.load.user_mix import DEFAULT_WEIGHTS
from tests.loadtest.conftest import StartFake
from tests.support.patience import until

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


def test_every_kind_of_user_is_in_the_file() -> None:
    with locust("--list") as process:
        assert process.status(120) == 0, process.output
        listed = {line.strip() for line in process.output.splitlines()}
    assert {f"{kind.capitalize()}User" for kind in DEFAULT_WEIGHTS} <= listed


def test_every_user_has_its_share_of_the_rate() -> None:
    options = Namespace(arrivals="poisson", rate=20.0, num_users=4)
    set_rate_per_user(options)
    assert options.rate_per_user == 5.0


def test_workers_share_the_rate_of_their_master_and_a_lost_one_is_told(
    start_fake: StartFake,
) -> None:
    server, port = start_fake(), str(free_port())
    arrivals = ("--arrivals", "constant", "--rate", "40", "--weights", "default=1")
    master_options = ("--master", "--master-bind-port", port, "--expect-workers", "2")
    load = ("--headless", "--host", server.url, "-u", "4", "-r", "4", "-t", "15s")
    worker_options = ("--worker", "--master-host", "127.0.0.1", "--master-port", port)
    with (
        locust(*master_options, *load, *arrivals) as master,
        locust(*worker_options),
        locust(*worker_options) as other,
    ):
        until(lambda: len(server.rules) >= 20)
        other.family.kill()
        assert master.status(120) == 1
        assert "0(0.00%)" in master.output
        assert "The load fell short: 1 of 2 workers were lost" in master.output
