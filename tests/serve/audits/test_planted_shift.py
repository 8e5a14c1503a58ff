"""Live answers begin to differ from full depth's: how soon it is seen, and what is done."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.audits import guardrail
from serve.classifier import auditor, classifier
from serve.engine.runner import Ids, ModelRunner, StepOutput
from tests.serve.support.ladders import NEVER, certify
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.planted_shift import (
    POLICY,
    RUNGS,
    Traffic,
    break_promise,
    judged,
    policy,
    quality,
)
from tests.support.patience import until


class BreakableHeads:
    """A runner, of which the head of one exit may be broken.

    Attributes:
        broken: index of the exit; None for none.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.broken: int | None = None

    def __len__(self) -> int:
        return len(self._runner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def start(self, ids: Ids, mask: Ids, types: Ids, until: int = 0) -> StepOutput:
        return self._heard(self._runner.start(ids, mask, types, until), until)

    def advance(self, index: int, *args: Any) -> StepOutput:
        made = self._runner.advance(index, *args)
        last = args[3] if len(args) > 3 else None
        return self._heard(made, index if last is None else last)

    def _heard(self, made: StepOutput, index: int) -> StepOutput:
        if index != self.broken:
            return made
        return made._replace(logits=np.roll(made.logits, 1, -1))


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> list[BreakableHeads]:
    """Let heads be broken, and the guardrail look without pauses."""
    made: list[BreakableHeads] = []
    build = classifier.build_runner

    def breakable(*args: Any) -> BreakableHeads:
        made.append(BreakableHeads(build(*args)))
        return made[-1]

    monkeypatch.setattr(classifier, "build_runner", breakable)
    monkeypatch.setattr(auditor, "TURN_S", 0.01)
    monkeypatch.setattr(guardrail, "_LOOK_EVERY_S", 0.0)
    return made


@pytest.fixture
def server(heads: list[BreakableHeads], bundle_copy: Callable[..., Path]) -> Iterator[LiveServer]:
    with serving_bundles(certify(bundle_copy("tiny"), "fp32", rungs=RUNGS)) as live:
        yield live


def renew(server: LiveServer, wanted: dict[str, Any]) -> None:
    """Put a policy whose evidence starts anew."""
    server.put_policy({**wanted, "default": NEVER}).raise_for_status()
    server.put_policy(wanted).raise_for_status()


def test_shift_is_seen_in_time_and_the_guardrail_acts_once(
    server: LiveServer, heads: list[BreakableHeads]
) -> None:
    traffic = Traffic(server)
    renew(server, POLICY)
    traffic.send(20, strange=0)
    until(partial(judged, server, 3, 20))
    assert (quality(server)["state"], policy(server)["version"]) == ("watching", 3)

    renew(server, POLICY)
    break_promise(server, traffic, 0.03, step=10)
    live = policy(server)
    assert (live["version"], live["by"], live["action"]) == (6, "guardrail", "guardrail")
    assert live["policy"]["default"] == {"target": {"max_disagreement": 0.02}}
    assert server.metric("offramp_policy_by_guardrail") == 1
    assert traffic.differing() == 0
    traffic.send(50)
    until(partial(judged, server, 6, 100))
    assert policy(server)["version"] == 6, "it has acted once"

    renew(server, live["policy"])
    heads[0].broken = 1  # at layer 2, where texts leave now
    assert traffic.differing(exit={"rule": "layer", "layer": 2}) > 0.02
    break_promise(server, traffic, 0.02, step=10)
    assert policy(server)["policy"]["default"] == {"target": {"max_disagreement": 0.01}}
    assert traffic.differing() == 0
