"""Locust patches the standard library for gevent, so it runs in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from loadtest.load.__main__ import main
from tests.loadtest.conftest import StartFake
from tests.loadtest.fake_server import FakeServer


class Done(NamedTuple):
    """A load test that has ended."""

    status: int
    printed: str
    folder: Path

    @property
    def report(self) -> Any:
        return json.loads((self.folder / "report.json").read_text())


Load = Callable[..., Done]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a server for a second, with more options."""

    def run(url: str, *options: str) -> Done:
        folder = tmp_path / "report"
        command = [sys.executable, "-m", "loadtest.load", "--host", url, "--out", str(folder)]
        command += ["--seconds", "1", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout + done.stderr, folder)

    return run


def answers(server: FakeServer) -> str:
    return f"{server.exits.total()} answers, {server.exits.total()} counted by the server"


def test_report_has_percentiles_and_exits_that_add_up(start_fake: StartFake, load: Load) -> None:
    server = start_fake()
    done = load(server.url)
    assert done.status == 0, done.printed
    words = ["p50 ms", "p95 ms", "p99 ms", "answered/s", "Where texts left", answers(server)]
    assert [word for word in words if word not in done.printed] == []
    assert server.exits.total() > 0
    assert {kind["kind"] for kind in done.report["kinds"]} == {
        "default policy",
        "target",
        "own threshold",
        "patience",
        "batch",
    }
    assert "(charts.html)" in (done.folder / "report.md").read_text()
    assert "avg_response_time" in (done.folder / "charts.html").read_text()


def test_options_decide_what_is_sent_and_how_often(
    start_fake: StartFake, load: Load, tmp_path: Path
) -> None:
    data = tmp_path / "dev.tsv"
    data.write_text("label\ttext\n1\tgood\n1\tfine\n")
    server = start_fake("is busy at every other try")
    rule = ("--exit", '{"rule": "layer", "layer": 2}', "--retries", "1", "--users", "1")
    done = load(server.url, *rule, "--texts", str(data), "--weights", "patience=1")
    assert done.status == 0, done.printed
    assert done.report["total"]["failures"] == 0
    assert done.report["first_tries_failed"] == done.report["total"]["requests"] > 0
    assert {rule["rule"] for rule in server.rules} == {"layer"}
    assert [kind["kind"] for kind in done.report["kinds"]] == ["patience"]
    assert done.report["accuracy"] == 1.0, "the fake server says that everything is positive"


def test_open_loop_keeps_its_rate_without_answers(start_fake: StartFake, load: Load) -> None:
    server = start_fake("never answers")
    options = ("--arrivals", "constant", "--rate", "40", "--most-outstanding", "5")
    done = load(server.url, *options, "--no-metrics", "--timeout", "0.5")
    found = done.report
    assert 30 <= found["total"]["requests"] <= 90
    assert found["not_sent"] > 0
    assert found["total"]["failures"] == found["total"]["requests"]
    assert "not sent: 5 requests were waiting" in done.printed


def test_ramp_ends_by_itself_and_names_its_knee(start_fake: StartFake, load: Load) -> None:
    options = ("--shape", "ramp", "--step-seconds", "1", "--most-users", "2")
    done = load(start_fake().url, *options)
    assert done.status == 0, done.printed
    assert [step["users"] for step in done.report["ramp"]["steps"]] == [1, 2]
    assert done.report["ramp"]["knee"]["users"] in (1, 2)
    assert "The ramp ended because" in done.printed


@pytest.mark.parametrize(
    ("faults", "complaints"),
    [
        (
            ("refuses batches", "hangs up at every other try", "drops a result"),
            ("at most one text", "no answer", "results for", "requests failed"),
        ),
        (("forgets to count",), ("the server did not count",)),
    ],
)
def test_fault_of_the_server_makes_the_run_fail(
    start_fake: StartFake, load: Load, faults: tuple[str, ...], complaints: tuple[str, ...]
) -> None:
    done = load(start_fake(*faults).url)
    assert done.status == 1
    assert [each for each in complaints if each not in done.printed] == []
    assert ("requests failed" in done.printed) == ("requests failed" in complaints)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--arrivals", "poisson"), "--arrivals poisson needs a --rate"),
        (("--texts", "nowhere.txt"), "nowhere.txt: no such file"),
        (("--rate", "0"), "0 is no number above 0"),
        (("--weights", "default=0"), "all weights are 0"),
        (("--weights", "other=1"), "is no weight"),
    ],
)
def test_options_that_cannot_work_are_refused(
    options: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--host", "http://127.0.0.1:1", *options])
    assert complaint in capsys.readouterr().err
