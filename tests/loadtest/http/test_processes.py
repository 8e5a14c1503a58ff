import os
import subprocess
import sys

import psutil

from loadtest.http.processes import Family, cost_of
from tests.support.patience import until

CHILD = "import subprocess, sys; subprocess.Popen(['sleep', '60', '60']); sys.stdin.read()"


def test_child_of_a_process_that_has_ended_is_of_its_family() -> None:
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


def test_cost_is_what_this_process_has_used_since() -> None:
    me = [psutil.Process(os.getpid())]
    before = cost_of(me)
    until(lambda: cost_of(me, memory=False).cpu_since(before) > 0.05, every_s=0)
    assert before.memory_mb > 10


def test_process_that_is_gone_costs_nothing() -> None:
    with subprocess.Popen(["true"]) as done:
        process = psutil.Process(done.pid)
        done.wait()
    assert cost_of([process]).cpu_s == {}
