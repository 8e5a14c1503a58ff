import os
import signal
import subprocess
import sys

import pytest

from loadtest.http import server_process
from loadtest.http.client import Client
from loadtest.http.interruption import held_back
from loadtest.http.processes import Family
from loadtest.http.server_process import ServerFailed
from tests.loadtest.conftest import MakeChild
from tests.support.patience import until

CHILD = "import subprocess, sys; subprocess.Popen(['sleep', '60', '60']); sys.stdin.read()"


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("fails to start", r"ended before it was ready:\nno bundle here"),
        ("ends with an error", r"ended with status 1:\ncould not save"),
        ("ignores SIGTERM", "1 processes of the server did not end"),
        ("leaves a child", "1 processes of the server did not end"),
    ],
)
def test_fault_is_a_failure_and_no_process_is_left(
    make_child: MakeChild, monkeypatch: pytest.MonkeyPatch, fault: str, complaint: str
) -> None:
    if fault == "ignores SIGTERM":
        monkeypatch.setattr(server_process, "_STOP_S", 0.0)
    monkeypatch.setattr(server_process, "_GONE_S", 0.0)
    with pytest.raises(ServerFailed, match=complaint), make_child(fault) as child:
        child.wait_until_ready(30.0)
    assert not Client(child.url).ready()


def test_server_that_is_never_ready_is_given_up(make_child: MakeChild) -> None:
    with (
        pytest.raises(ServerFailed, match="not ready after 0 s"),
        make_child("is never ready") as child,
    ):
        child.wait_until_ready(0.0)


@pytest.mark.parametrize(
    ("error", "faults"), [(KeyboardInterrupt, ()), (ZeroDivisionError, ("ends with an error",))]
)
def test_block_that_raises_ends_its_server_and_keeps_its_error(
    make_child: MakeChild, error: type[BaseException], faults: tuple[str, ...]
) -> None:
    with pytest.raises(error), make_child(*faults) as child:
        child.wait_until_ready(30.0)
        raise error
    assert not Client(child.url).ready()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_the_block_has_ended(number: signal.Signals) -> None:
    before, finished = signal.getsignal(number), False
    with pytest.raises(KeyboardInterrupt), held_back():
        os.kill(os.getpid(), number)
        finished = True
    assert finished
    assert signal.getsignal(number) is before


def test_a_child_of_a_process_that_has_ended_is_of_its_family() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, start_new_session=True
    ) as leader:
        family = Family(leader.pid)
        (child,) = until(lambda: family.titled("60 60"))
        assert len(family.running()) == 2
        leader.kill()
        leader.wait()
        assert family.running() == {child}
        assert family.kill() == 1
    until(lambda: not family.running())
