"""The whole command, with the quickest of its scenarios."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.nightly
@pytest.mark.ray
def test_every_answer_is_of_the_policy_version_that_it_names(
    bundle_folder: Path, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "loadtest.scenarios",
        str(bundle_folder),
        "--out",
        str(tmp_path),
    ]
    command += ["--only", "thresholds", "--seconds", "10", "--rate", "15"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "thresholds" / "report.json").read_text())
    assert found["total"]["failures"] == 0
    assert len(found["exits"]["by_policy_version"]) > 1
    assert "| thresholds |" in (tmp_path / "scenarios.md").read_text()
