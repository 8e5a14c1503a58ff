"""Live answers begin to differ from full depth's: how soon it is seen, and what is done."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from serve.classifier import auditor
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


def renew(server: LiveServer, wanted: dict[str, Any]) -> None:
    """Put a policy whose evidence starts anew."""
    server.put_policy({**wanted, "default": NEVER}).raise_for_status()
    server.put_policy(wanted).raise_for_status()


def test_shift_is_seen_in_time_and_the_guardrail_acts_once(
    bundle_copy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditor, "TURN_S", 0.01)
    with serving_bundles(certify(bundle_copy("tiny"), "fp32", rungs=RUNGS)) as server:
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
