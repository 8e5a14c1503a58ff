import subprocess
import sys

import pytest

from loadtest.chaos.server_processes import NotSeen, ServerProcesses, wait_for

CHILD = "import subprocess, sys; subprocess.Popen(['sleep', '60', '60']); sys.stdin.read()"


def test_process_that_outlives_the_server_is_found() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, start_new_session=True
    ) as leader:
        processes = ServerProcesses(leader.pid)
        wait_for(lambda: len(processes.look()) == 2, "its child", timeout_s=60)
        leader.kill()
        leader.wait()
        (left,) = processes.left(patience_s=0.1)
        left.kill()
    assert processes.left() == []


def test_event_that_does_not_happen_is_named() -> None:
    with pytest.raises(NotSeen, match="another replica: not within 0 s"):
        wait_for(lambda: False, "another replica", timeout_s=0)
