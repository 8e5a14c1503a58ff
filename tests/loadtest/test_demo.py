import shutil
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.demo import DemoFailed, compare, demonstrate, main, run
from loadtest.http import interruption
from loadtest.http.client import Client
from tests.loadtest.conftest import MakeChild, StartFake
from tests.support.tiny import tiny_model

RUN = """
import sys
from rich.console import Console
from loadtest.demo import run
from loadtest.http.server_process import ServerProcess
sys.exit(run(ServerProcess(sys.argv[1:], int(sys.argv[-1])), Console()))
"""


@pytest.fixture
def console() -> Console:
    return Console(file=StringIO(), width=200)


def printed(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("ignores the policy", "no text leaves elsewhere"),
        ("answers under an old version", "answers name policy version"),
        ("keeps what targets become", "does not say what its target became"),
        ("forgets to count", "the metrics count 0 exits"),
    ],
)
def test_claim_that_does_not_hold_is_a_failure(
    start_fake: StartFake, console: Console, fault: str, complaint: str
) -> None:
    with pytest.raises(DemoFailed, match=complaint):
        demonstrate(Client(start_fake(fault).url), console)


def test_run_starts_shows_stops_and_succeeds(make_child: MakeChild, console: Console) -> None:
    child = make_child()
    assert run(child, console) == 0
    assert printed(console).endswith("the server has stopped\n")
    assert not Client(child.url).ready()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_ends_its_server(make_child: MakeChild, number: signal.Signals) -> None:
    child = make_child("never answers")
    with subprocess.Popen(
        [sys.executable, "-c", RUN, *child.command], stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        assert any("ready after" in line for line in demo.stdout)
        demo.send_signal(number)
        rest = demo.stdout.read()
    assert demo.returncode == 130
    assert "interrupted" in rest
    assert not Client(child.url).ready()


def test_failure_after_an_interrupt_that_got_lost_is_still_an_interrupt(
    make_child: MakeChild, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruption, "_received", [signal.SIGTERM])
    assert run(make_child("fails to start"), console) == 130
    assert "interrupted" in printed(console)


def test_a_bundle_is_compared_with_the_model_it_was_made_from(bundle_folder: Path) -> None:
    said = compare(bundle_folder, bundle_folder.with_name("tiny-model"))
    assert said.startswith("compared with transformers 5")
    assert "logits of BertModel through the last exit's head to " in said


def test_a_bundle_of_another_model_is_a_failure(
    bundle_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(bundle_folder.with_name("tiny-model"), tmp_path / "other")
    tiny_model(seed=1).save(other)
    assert main([str(bundle_folder), "--model", str(other)]) == 1
    assert "the model differs from transformers: in " in " ".join(capsys.readouterr().out.split())
