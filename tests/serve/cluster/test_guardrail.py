"""A planted shift under Ray, with two replicas of which one is killed before the alarm."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.serve.support.ladders import certify
from tests.serve.support.planted_shift import (
    POLICY,
    RUNGS,
    Traffic,
    break_promise,
    judged,
    policy,
    quality,
)
from tests.serve.support.server_process import START_S, ServerProcess
from tests.support.patience import until

pytestmark = pytest.mark.ray


@pytest.fixture
def process(bundle_copy: Callable[..., Path], ray_folder: Path) -> Iterator[ServerProcess]:
    bundle = certify(bundle_copy("tiny"), "int8", rungs=RUNGS)
    with ServerProcess(bundle, "--replicas", "2", "--port", "0") as process:
        yield process


def test_guardrail_acts_once_for_all_replicas_and_counts_of_a_killed_one_stay(
    process: ServerProcess,
) -> None:
    server = process.client()
    traffic = Traffic(server)
    server.put_policy(POLICY).raise_for_status()
    traffic.send(20)
    until(partial(judged, server, 2, 20), START_S)
    seen = quality(server)["audits"]

    replicas = process.replicas()
    next(iter(replicas)).kill()
    until(lambda: len(process.replicas() - replicas) == 1, START_S)
    if policy(server)["version"] == 2:
        until(lambda: quality(server)["audits"] >= seen)
        break_promise(server, traffic, 0.03, step=20)

    until(lambda: server.metric("offramp_policy_version") == 6, START_S)
    live = policy(server)
    assert (live["version"], live["by"]) == (3, "guardrail")
    assert live["policy"]["default"] == {"target": {"max_disagreement": 0.02}}
    assert traffic.differing() == 0
    traffic.send(40)
    until(partial(judged, server, 3, 90), START_S)
    assert policy(server)["version"] == 3, "it has acted once"
