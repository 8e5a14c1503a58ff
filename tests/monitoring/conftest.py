"""The metrics page as a server gives it, and Prometheus' own tools."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from serve.metrics.page import ReplicaCount, merge_pages
from tests.serve.support.live_server import serving_bundles

Promtool = Callable[..., str]


@pytest.fixture(scope="session")
def page(bundle_folder: Path) -> str:
    """Return the page of one replica that has answered a request, as Ray Serve's would be."""
    with serving_bundles(bundle_folder) as server:
        server.answer(["w1", "w2 w3"])
        server.refusal("")
        text = server.http.get("/metrics").text
    text = re.sub(r"^.*offramp_replicas_.*\n", "", text, flags=re.MULTILINE)  # of no replica alone
    return merge_pages({"a": text}, 0, ReplicaCount(wanted=1, running=1)).decode()


@pytest.fixture
def promtool() -> Promtool:
    """Run promtool; what it says is returned, and anything but success fails the test."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed; Debian has it in the package prometheus")

    def run(*arguments: str | Path, text: str | None = None) -> str:
        done = subprocess.run(
            [program, *map(str, arguments)],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run
