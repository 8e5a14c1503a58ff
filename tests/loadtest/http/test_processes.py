import os
import subprocess
import sys

import psutil

from loadtest.http.processes import cost_of, session_of
from tests.support.patience import until

BUSY = "import os, subprocess, sys; subprocess.Popen(['sleep', '60']); sys.stdin.read()"


def test_session_has_its_leader_and_its_children() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, start_new_session=True
    ) as leader:
        try:
            found = until(lambda: [p for p in session_of(leader.pid) if "sleep" in p.cmdline()])
            assert found[0].pid != leader.pid
        finally:
            for process in session_of(leader.pid):
                process.kill()


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
