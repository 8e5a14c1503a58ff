"""Signals that Ray's processes get too: the end is soon, and leaves nothing."""

import signal
from pathlib import Path
from tempfile import mkdtemp

import pytest

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
