"""Signals that Ray's processes get too: the end is soon, and leaves nothing."""

import signal
import socket
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.serve.support.live_server import FULL_DEPTH, LiveServer
from tests.serve.support.server_process import START_S, ServerProcess
from tests.support.patience import until

pytestmark = pytest.mark.ray


def check_first_answer(port: int) -> None:
    """Check that the policy changes with the first request that the replica answers."""
    with LiveServer(port).http as http:

        def first_answer() -> httpx.Response | None:
            try:
                return http.put("/v1/models/tiny/policy", json=FULL_DEPTH)
            except httpx.ConnectError:
                return None

        assert until(first_answer, START_S).status_code == 200
        assert "offramp_replicas_scraped 1.0" in http.get("/metrics").text


@pytest.mark.parametrize("serving", [True, False], ids=["serving", "starting"])
def test_signal_to_every_process_ends_all_and_leaves_no_folder(
    bundle_folder: Path, ray_folder: Path, serving: bool
) -> None:
    """Ray would wait for its control process for a minute, and then abort."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ServerProcess(bundle_folder, "--port", str(port)) as process:
        if serving:
            check_first_answer(port)
            process.curl_line()
        else:
            until(lambda: process.family.titled("gcs_server"))
        for each in process.left():  # as systemd does
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGTERM)
        assert process.exit_status() == 0, process.output
        assert process.output.splitlines()[-1] == "stopped"
        assert "Failed to connect to GCS within" not in process.output
        assert not process.left()
    assert not list(ray_folder.iterdir())
