"""The guardrail example runs by its one command, with a model that is tiny."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "docs" / "examples" / "guardrail" / "run.py"


@pytest.mark.nightly
@pytest.mark.parametrize(("threshold", "status"), [(0.0, "400 flagged"), (1.0, "200 You said")])
def test_the_example_blocks_what_the_policy_flags(
    bundle_folder: Path, tmp_path: Path, threshold: float, status: str
) -> None:
    policy = json.loads(RUN.with_name("policy.json").read_text())
    guard = policy["policy"]["profiles"]["guard"]
    guard |= {"exit": {"rule": "never"}, "flag": {"negative": threshold}}
    guard["windows"]["stride"] = 8
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    command = [sys.executable, RUN, bundle_folder, "--policy", tmp_path / "policy.json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = ran.stdout.splitlines()[1::2]
    assert len(answers) == 3
    assert [answer.strip()[: len(status)] for answer in answers] == [status] * 3
