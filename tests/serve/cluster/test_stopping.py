"""Signals that Ray's processes get too, and commands that are killed: nothing is left."""

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from tests.serve.support.server_process import ServerProcess
from tests.support.patience import until

pytestmark = pytest.mark.ray


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # pytest's own folder would make paths that are too long for sockets.
    with TemporaryDirectory(prefix="ray-") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


@pytest.mark.parametrize("serving", [True, False], ids=["serving", "starting"])
def test_signal_to_every_process_ends_all_and_leaves_no_folder(
    bundle_folder: Path, temporary: Path, serving: bool
) -> None:
    """Ray would wait for its control process for a minute, and then abort."""
    with ServerProcess(bundle_folder, "--port", "0") as process:
        if serving:
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
    assert not list(temporary.iterdir())


def test_killed_command_leaves_no_process(bundle_folder: Path, temporary: Path) -> None:
    with ServerProcess(bundle_folder, "--port", "0") as process:
        process.curl_line()
        process.send(signal.SIGKILL)
        process.exit_status()
        until(lambda: not process.left())
