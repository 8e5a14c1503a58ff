"""`offramp rollout` on a real server."""

import json
import re
from typing import Any

import pytest

from tests.serve.policy_cli.conftest import Offramp
from tests.serve.support.live_server import LiveServer
from tests.support.patience import until

START = (
    "start", "default={rule: layer, layer: 1}", "--layers", 3, "--errors", 0.1, "--p99-ms", 60_000,
    "--by", "request",
)  # fmt: skip
# Of each bound, what has been found and what is said of it.
INTERVAL = r" \[0, [0-9.]+\]"
SHOWN = rf"candidate\n(  .*\n)*  slow +0{INTERVAL}\n  errors +0{INTERVAL}  inconclusive\n"


@pytest.fixture
def rollout(here: Offramp) -> Any:
    """Run subcommands of `offramp rollout` on a server of the test's own."""
    return lambda *words: here(*words, command="rollout")


def test_rollout_from_a_terminal(rollout: Any, live: LiveServer) -> None:
    assert rollout("status").said == "tiny: there was no rollout\n"
    started = rollout(*START, "--steps", "50,100", "--why", "faster")
    assert started.status == 0
    assert started.said.startswith("tiny  running  50 %  step 1 of 2\n  verdict: too early\n")
    for _ in range(10):
        live.answer("w1")
    until(lambda: "layers         1 [1, " in rollout("status").said)
    until(lambda: re.search(SHOWN, rollout("status").said))
    assert rollout(*START).status == 3
    assert rollout("pause", "--version", 1).status == 3
    assert "paused" in rollout("pause", "--why", "lunch").said
    assert "running" in rollout("resume").said
    assert json.loads(rollout("promote", "--json").said)["percent"] == 100
    ended = rollout("promote")
    assert ended.said.startswith("tiny  promoted  100 %")
    assert "version 2  " in ended.said
    assert rollout("abort").status == 3


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("start", "default=fast"), 2, "give at least one bound: --disagreement"),
        (("start", "--layers", 3), 2, "give changes such as default=balanced, or --file"),
        ((*START, "--steps", "5;10"), 2, "--steps: must be percentages such as"),
        ((*START, "--steps", "10,5"), 1, "steps: each step must be larger"),
        ((*START, "--on-inconclusive", "hope"), 1, "on_inconclusive: "),
        (("promote",), 3, "no rollout runs"),
    ],
)
def test_what_was_wrong_is_said(
    rollout: Any, words: tuple[Any, ...], status: int, message: str
) -> None:
    ran = rollout(*words)
    assert ran.status == status
    assert message in ran.error
