"""Live answers begin to differ from full depth's: how soon it is seen, and what is done."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from loadtest.bench.evidence import audits_until
from serve.audits import guardrail, lane
from serve.classifier import classifier
from serve.engine.runner import Ids, ModelRunner, StepOutput
from tests.serve.support.ladders import NEVER, certificate, certify, rung
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.support.patience import until

DELTA, SHIFTED = 0.01, 0.2
# All texts leave at one layer, so which answers differ is known before they are asked for.
RUNGS = [
    rung(NEVER, (0, 0, 0, 1), 0),
    rung({"rule": "layer", "layer": 3}, (0, 0, 1, 0), 0.0, certificate("disagreement", 0.01, 0.0)),
    rung({"rule": "layer", "layer": 2}, (0, 1, 0, 0), 0.0, certificate("disagreement", 0.02, 0.0)),
    rung({"rule": "layer", "layer": 1}, (1, 0, 0, 0), 0.0, certificate("disagreement", 0.03, 0.0)),
]
POLICY = {
    "default": {"target": {"max_disagreement": 0.03}},
    "audit": {"share": 1.0, "max_queue_ms": 60_000},
    "guard": {"on_broken_promise": "safer", "delta": DELTA},
}


class NoisyHead:
    """A runner, of which the head of one exit may be broken."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.noisy: int | None = None

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
        return made._replace(logits=np.roll(made.logits, 1, -1)) if index == self.noisy else made


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> list[NoisyHead]:
    """Let heads be broken, and the guardrail look without pauses."""
    made: list[NoisyHead] = []
    build = classifier.build_runner

    def noisy(*args: Any) -> NoisyHead:
        made.append(NoisyHead(build(*args)))
        return made[-1]

    monkeypatch.setattr(classifier, "build_runner", noisy)
    monkeypatch.setattr(lane, "TURN_S", 0.01)
    monkeypatch.setattr(guardrail, "_LOOK_EVERY_S", 0.0)
    return made


@pytest.fixture
def server(heads: list[NoisyHead], bundle_copy: Any) -> Iterator[LiveServer]:
    with serving_bundles(certify(bundle_copy("tiny"), "fp32", rungs=RUNGS)) as live:
        yield live


class Traffic:
    """Texts whose answer at layer 1 is full depth's, and those where it is that of layer 2 only."""

    def __init__(self, server: LiveServer) -> None:
        self._server = server
        texts = [f"w{i} w{j} w{i + j}" for i in range(24) for j in range(8)]
        at = [self._labels(texts, {"rule": "layer", "layer": layer}) for layer in (1, 2, 3, 4)]
        same = list(zip(texts, *at, strict=True))
        self.quiet = [text for text, *labels in same if len(set(labels)) == 1]
        self.strange = [
            text for text, one, *rest in same if {one} != set(rest) and len(set(rest)) == 1
        ]
        assert len(self.quiet) >= 2
        assert len(self.strange) >= 2

    def _labels(self, texts: list[str], exit_: Any = None) -> list[str]:
        fields = {"exit": exit_} if exit_ else {}
        found = [self._server.answer(texts[i : i + 48], **fields) for i in range(0, len(texts), 48)]
        return [each["label"] for answer in found for each in answer["results"]]

    def send(self, strange: int, quiet: int) -> None:
        """Ask for texts of both kinds, and wait until all are audited."""
        texts = [*np.resize(self.strange, strange), *np.resize(self.quiet, quiet)]
        before = self._counted()
        self._server.answer(list(map(str, texts)))
        until(lambda: self._counted() >= before + len(texts))

    def differing(self, num_texts: int = 50) -> float:
        """Return how many live answers to shifted texts differ from full depth's."""
        strange = round(SHIFTED * num_texts)
        texts = [*np.resize(self.strange, strange), *np.resize(self.quiet, num_texts - strange)]
        texts = list(map(str, texts))
        pairs = zip(self._labels(texts), self._labels(texts, NEVER), strict=True)
        return float(np.mean([live != full for live, full in pairs]))

    def _counted(self) -> float:
        return self._server.metric("offramp_audits_total", profile="default")


def quality(server: LiveServer) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get("/v1/models/tiny/quality").raise_for_status().json()
    return found


def policy(server: LiveServer) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get("/v1/models/tiny/policy").json()
    return found


def broken_after(server: LiveServer, traffic: Traffic, epsilon: float) -> None:
    """Send shifted texts until the guardrail acts, which the table gives so many audits for."""
    version = policy(server)["version"]
    for audits in range(10, audits_until(epsilon, DELTA, SHIFTED)[-1] + 10, 10):
        traffic.send(strange=2, quiet=8)
        if until(partial(acted_or_judged, server, version, audits)) == "acted":
            return
    pytest.fail("the guardrail acts later than the table says")


def acted_or_judged(server: LiveServer, version: int, audits: int) -> str:
    if policy(server)["version"] > version:
        return "acted"
    found = quality(server)
    judged = found["version"] == version and found["profiles"]["default"]["audits"] >= audits
    return "judged" if judged and found["profiles"]["default"]["state"] != "broken" else ""


def test_shift_is_seen_in_time_and_the_guardrail_acts_once(
    server: LiveServer, heads: list[NoisyHead]
) -> None:
    server.put_policy(POLICY)
    traffic = Traffic(server)
    traffic.send(strange=0, quiet=20)
    assert until(partial(acted_or_judged, server, 2, 20)) == "judged"
    server.put_policy({**POLICY, "default": NEVER})
    server.put_policy(POLICY)  # evidence starts anew

    broken_after(server, traffic, 0.03)
    live = policy(server)
    assert (live["version"], live["by"], live["action"]) == (5, "guardrail", "guardrail")
    assert live["policy"]["default"] == {"target": {"max_disagreement": 0.02}}
    assert server.metric("offramp_policy_by_guardrail") == 1
    assert traffic.differing() == 0
    traffic.send(strange=10, quiet=40)
    assert policy(server)["version"] == 5, "it has acted once"

    heads[0].noisy = 1  # the head of the second exit, where texts leave now
    assert traffic.differing() > 0.02
    server.put_policy(live["policy"] | {"default": NEVER})
    server.put_policy(live["policy"])
    broken_after(server, traffic, 0.02)
    assert policy(server)["policy"]["default"] == {"target": {"max_disagreement": 0.01}}
    assert traffic.differing() == 0
