import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from serve.audits.counts import AuditCounts, AuditKey, Tally, promise_of
from serve.audits.guardrail import Guardrail
from serve.logs import TRAIL
from serve.policy.database import Database
from serve.policy.document import DEFAULT, Policy
from serve.policy.entry import Change
from serve.policy.live import LivePolicy
from tests.serve.support.ladders import NEVER, served

FAST = {"target": {"max_disagreement": 0.03}}
SAFER = {"on_broken_promise": "safer"}


class Replica:
    """A replica as far as the guardrail knows it."""

    def __init__(self, store: Database, name: str) -> None:
        self.policy = LivePolicy("tiny", served(), store)
        self.policy.refresh()
        self.store, self._name, self._counts = store, name, AuditCounts()
        self.guardrail = Guardrail("tiny", self.policy, served(), store)

    def put(self, policy: dict[str, Any]) -> None:
        self.policy.change(Policy.model_validate(policy), None)

    def audit(self, differ: int, agree: int, profile: str = "fast") -> None:
        live = self.policy.live
        promise = promise_of(live, profile, live.applied.named[profile])
        self._counts.add(AuditKey(profile, promise), Tally(audited=differ + agree, differ=differ))
        self.store.put_counts("tiny", self._name, self._counts.to_json())

    def exit(self, profile: str = "fast") -> dict[str, Any]:
        self.policy.refresh()
        policy = self.policy.current.policy.model_dump(mode="json", exclude_none=True)
        return policy["default"] if profile == DEFAULT else policy["profiles"][profile]

    @property
    def versions(self) -> list[tuple[int, str]]:
        """Version and author of the log, oldest first."""
        return [(each.version, each.by) for each, _ in self.policy.history]


MakeReplicas = Callable[[int], list[Replica]]


@pytest.fixture
def make_replicas() -> MakeReplicas:
    def make(number: int) -> list[Replica]:
        store = Database()
        replicas = [Replica(store, str(place)) for place in range(number)]
        replicas[0].policy.set_baseline(
            Policy.model_validate({"default": NEVER, "profiles": {"fast": FAST}, "guard": SAFER}),
            "bundle",
        )
        for each in replicas:
            each.policy.refresh()
        return replicas

    return make


@pytest.fixture
def replica(make_replicas: MakeReplicas) -> Replica:
    return make_replicas(1)[0]


def test_broken_promise_makes_the_profile_safer_once(
    replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    replica.audit(differ=40, agree=160)
    with caplog.at_level(logging.INFO, TRAIL):
        [alarm] = replica.guardrail.look()
    lines = [record.getMessage() for record in caplog.records if record.name == TRAIL]
    assert lines == ["policy changed", "promise broken"]
    assert json.loads(json.dumps(alarm.data))["lost"] == 40
    assert (alarm.version, alarm.new_version) == (1, 2)
    assert replica.exit() == {"target": {"max_disagreement": 0.01}}
    entry = replica.policy.current
    assert (entry.by, entry.action, entry.source) == ("guardrail", "guardrail", "guardrail")
    assert entry.why == alarm.sentence
    assert "40 of 200 audited texts" in alarm.sentence
    for _ in range(3):
        assert replica.guardrail.look() == []
    assert replica.versions == [(1, "bundle"), (2, "guardrail")]


def test_kept_promise_changes_nothing(replica: Replica) -> None:
    replica.audit(differ=3, agree=197)
    assert replica.guardrail.look() == []
    assert len(replica.versions) == 1


def test_each_rung_needs_evidence_of_its_own_until_nothing_leaves_early(replica: Replica) -> None:
    exits = []
    for _ in range(3):
        replica.audit(differ=40, agree=160)
        assert len(replica.guardrail.look()) == 1
        exits.append(replica.exit())
    bounds = [{"target": {"max_disagreement": each}} for each in (0.01, 0.005)]
    assert exits == [*bounds, NEVER]
    replica.audit(differ=40, agree=160)  # nothing is promised any more
    assert replica.guardrail.look() == []


def test_rollback_starts_evidence_anew(replica: Replica) -> None:
    replica.audit(differ=40, agree=160)
    replica.guardrail.look()
    first = replica.policy.version(1).entry.policy
    replica.policy.change(first, 2, Change("operator", None, "rollback"))
    for _ in range(3):
        assert replica.guardrail.look() == []
    assert replica.exit() == FAST
    replica.audit(differ=40, agree=160)
    assert [alarm.new_version for alarm in replica.guardrail.look()] == [4]


def test_change_of_another_profile_keeps_the_evidence(replica: Replica) -> None:
    replica.audit(differ=5, agree=45)
    assert replica.guardrail.look() == []
    replica.put(
        {"default": NEVER, "profiles": {"fast": FAST, "other": NEVER}, "guard": SAFER},
    )
    replica.audit(differ=35, agree=115)
    [alarm] = replica.guardrail.look()
    assert alarm.promise.texts == 200


@pytest.mark.parametrize("mode", ["alert", "safer"])
def test_one_of_all_replicas_tells(mode: str, make_replicas: MakeReplicas) -> None:
    replicas = make_replicas(4)
    profiles = {"default": NEVER, "profiles": {"fast": FAST}}
    replicas[0].put({**profiles, "guard": {"on_broken_promise": mode}})
    replicas[0].audit(differ=40, agree=160)
    told = [len(each.guardrail.look()) for _ in range(3) for each in replicas]
    assert sum(told) == 1
    assert (replicas[0].exit() == FAST) == (mode == "alert")


def test_a_client_that_changes_the_policy_first_wins(replica: Replica) -> None:
    replica.audit(differ=40, agree=160)
    replica.put({"default": NEVER, "profiles": {"fast": {"rule": "never"}}, "guard": SAFER})
    assert replica.guardrail.look() == []
    assert replica.exit() == NEVER


def test_target_that_another_profile_misses_here_is_no_obstacle(replica: Replica) -> None:
    # As after a move to a slower machine: a client's change would be refused.
    slow = {"target": {"max_ms": 1e-6}}
    policy = Policy.model_validate(
        {"default": NEVER, "profiles": {"fast": FAST, "slow": slow}, "guard": SAFER}
    )
    entry = replica.policy.current.model_copy(update={"version": 2, "policy": policy})
    assert replica.store.append("tiny", entry.following(replica.policy.current, None))
    replica.policy.refresh()
    replica.audit(differ=40, agree=160)
    assert len(replica.guardrail.look()) == 1
    assert replica.exit() == {"target": {"max_disagreement": 0.01}}


def test_all_broken_profiles_change_in_one_version(replica: Replica) -> None:
    replica.put({"default": FAST, "profiles": {"fast": FAST}, "guard": SAFER})
    replica.audit(differ=40, agree=160)
    replica.audit(differ=40, agree=160, profile=DEFAULT)
    assert {alarm.new_version for alarm in replica.guardrail.look()} == {3}
    assert replica.exit() == replica.exit(DEFAULT) == {"target": {"max_disagreement": 0.01}}
