"""Signals that Ray's processes get too: the end is soon, and leaves nothing."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from threading import Event

import pytest

from serve.cluster.leftover import end_leftover
from serve.cluster.ray_calls import RayCalls, RayEnded
from tests.serve.support.server_process import ServerProcess
from tests.support.patience import until


@pytest.mark.ray
@pytest.mark.parametrize("serving", [True, False], ids=["serving", "starting"])
def test_signal_to_the_whole_group_ends_all_and_leaves_no_folder(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch, serving: bool
) -> None:
    """Ray would wait for its control process for a minute, and then abort."""
    # pytest's own folder would make paths that are too long for sockets.
    temporary = Path(mkdtemp(prefix="ray-"))
    monkeypatch.setenv("RAY_TMPDIR", str(temporary))
    with ServerProcess(bundle_folder, "--port", "0") as process:
        if serving:
            process.curl_line()
        else:
            until(lambda: process.family.titled("gcs_server"))
        process.send_to_group(signal.SIGTERM)
        assert process.exit_status() == 0, process.output
        assert process.output.splitlines()[-1] == "stopped"
        assert "Failed to connect to GCS within" not in process.output
        assert not process.left()
    temporary.rmdir()  # refuses a folder that is not empty


def test_a_call_of_ray_is_left_when_its_control_process_has_ended_or_on_demand() -> None:
    calls, released = RayCalls(), Event()
    try:
        with socket.create_server(("127.0.0.1", 0)) as control:
            host, port = control.getsockname()
            calls.watch(f"{host}:{port}")
            assert calls.call(lambda: "answer") == "answer"
            assert not calls.hang
            assert calls.call(released.wait, until=lambda: True) is None
            assert calls.hang
        with pytest.raises(RayEnded):
            calls.call(released.wait)
    finally:
        released.set()
    until(lambda: not calls.hang)


def test_only_processes_of_the_session_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, log = tmp_path / "token", tmp_path / "log"
    log.touch()

    def start(name: str, of: Path) -> subprocess.Popen[bytes]:
        """Start a process of this name that has the log open."""
        wait = [name, "-c", f"f = open({str(log)!r}); print('up', flush=True); input()"]
        started = subprocess.Popen(
            wait,
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "SESSION": str(of)},
        )
        assert started.stdout
        assert started.stdout.readline() == b"up\n"
        return started

    monkeypatch.setenv("SESSION", str(token))
    elsewhere = tmp_path / "token too"
    with (
        start("python", token) as marked,
        start("ray::Agent", elsewhere) as titled,
        start("tail", elsewhere) as other,
    ):
        end_leftover(token, "SESSION")
        assert marked.wait() == titled.wait() == -signal.SIGKILL
        assert other.poll() is None
        other.communicate(b"\n")
        assert other.returncode == 0
