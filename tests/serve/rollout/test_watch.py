"""Rollouts by counts that the tests make up, with a clock that the tests turn."""

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any
from unittest.mock import Mock

import pytest

from serve.audits.counts import AuditCounts, AuditKey, Tally, Traffic
from serve.errors import RolloutConflict, TargetOutOfReach, VersionConflict
from serve.logs import TRAIL
from serve.policy.database import Database
from serve.policy.document import Policy
from serve.policy.entry import Change, RolloutAction, VersionedPolicy
from serve.policy.live import LivePolicy
from serve.policy.rollout import Arm, Plan
from serve.rollout.watch import RolloutWatch, moved, started
from tests.serve.support.ladders import TRAITS, served

LIVE = Policy.model_validate({"default": {"rule": "layer", "layer": 3}})
CANDIDATE = Policy.model_validate({"default": {"rule": "layer", "layer": 1}})
HALF = {"steps": (10, 50), "hold_s": 0, "min_answers": 100, "bounds": {"disagreement": 0.05}}


class Replica:
    """A replica as far as rollouts know it."""

    def __init__(self, store: Database, name: str = "a") -> None:
        self.policy = LivePolicy("tiny", served(), store)
        self.policy.set_baseline(LIVE, "bundle")
        self._store, self._name, self._counts = store, name, AuditCounts()
        self.watch = RolloutWatch("tiny", self.policy, TRAITS.exits, store, self._count)

    def _count(self, key: AuditKey, tally: Tally) -> None:
        self._counts.add(key, tally)
        self._store.put_counts("tiny", self._name, self._counts.to_json())

    def start(self, **plan: Any) -> VersionedPolicy:
        start = partial(started, plan=Plan.model_validate({**HALF, **plan}), candidate=CANDIDATE)
        return self.policy.change(start, None, Change("ops", "faster", "rollout")).new

    def move(self, action: RolloutAction, answered: int = 0, based_on: int | None = None) -> None:
        move = partial(moved, action=action, answered=answered, why=None)
        self.policy.change(move, based_on, Change("ops", None, action))

    def answer(
        self, audits: int = 0, differ: int = 0, arm: Arm = "candidate", layer: int = 1, **own: int
    ) -> None:
        """Count answers of an arm, of which some were audited."""
        live = self.policy.live if arm == "live" else self.policy.live.candidate
        assert live is not None
        assert live.arm is not None
        number = own.pop("answers", audits)
        traffic = Traffic(requests=number, timed=number, exits={layer: number}, **own)
        self._count(
            AuditKey.of_arm(live.arm), Tally(audited=audits, differ=differ, traffic=traffic)
        )

    def look(self) -> VersionedPolicy:
        self.watch.look()
        return self.policy.current

    @property
    def percent(self) -> float:
        running = self.policy.current.running
        return running.percent if running else 0.0

    def log(self) -> list[tuple[str, str, float]]:
        """Source, action and percent of each entry after the baseline, oldest first."""
        entries = [entry for entry, _ in self.policy.history]
        return [(e.source, e.action, e.rollout.percent) for e in entries if e.rollout]


@pytest.fixture
def store() -> Database:
    return Database()


@pytest.fixture
def replica(store: Database) -> Replica:
    return Replica(store)


def test_good_candidate_goes_up_step_by_step_and_becomes_the_policy(replica: Replica) -> None:
    replica.start()
    assert (replica.policy.current.policy, replica.percent) == (LIVE, 10)
    replica.answer(audits=1000)
    assert replica.look().policy == LIVE
    assert replica.percent == 50
    replica.look()
    assert replica.percent == 50  # the answers of the step before do not count once more
    replica.answer(audits=100)
    promoted = replica.look()  # the last step is not all requests
    assert (promoted.policy, promoted.running, replica.percent) == (CANDIDATE, None, 0)
    assert promoted.by == "rollout"
    assert replica.log() == [
        ("api", "rollout", 10), ("rollout", "rollout", 50), ("rollout", "promote", 100),
    ]  # fmt: skip
    assert replica.policy.live.candidate is None


def test_bad_candidate_goes_back_by_itself_at_once(
    replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    start = replica.start(hold_s=600, min_answers=10_000)
    replica.answer(audits=100, differ=30)
    with caplog.at_level(logging.INFO, TRAIL):
        failed = replica.look()
    assert (failed.policy, failed.action, failed.by) == (LIVE, "failed", "rollout")
    assert failed.since == start.since  # what audits know of the live promises stays
    assert failed.why is not None
    assert failed.why.startswith("at 10 %: failed: disagreement ")
    [line] = caplog.records
    assert line.fields["rollout"] == "failed"  # type: ignore[attr-defined]
    assert replica.look() == failed


def test_failed_rollout_is_told_to_the_webhook_of_the_policy(replica: Replica) -> None:
    url = "https://alerts.example.com/offramp"
    guarded = {"default": {"rule": "layer", "layer": 3}, "guard": {"webhook": url}}
    replica.policy.change(Policy.model_validate(guarded), None)
    replica.watch._webhook = told = Mock()
    replica.start()
    replica.answer(audits=100, differ=30)
    why = replica.look().why
    versions = {"version": 3, "new_version": 4}
    expected = {"model": "tiny", "rollout": "failed", "why": why, **versions}
    told.tell.assert_called_once_with(url, expected)


@pytest.mark.parametrize(
    ("bounds", "own"),
    [
        ({"p99_ms": 50}, {"slow": 100}),
        ({"layers": 2}, {"layer": 4}),
        ({"errors": 0.01}, {"errors": 100}),
    ],
)
@pytest.mark.parametrize("bad", [True, False])
def test_every_bound_passes_the_good_and_fails_the_bad(
    replica: Replica, bounds: dict[str, float], own: dict[str, int], bad: bool
) -> None:
    replica.start(bounds=bounds, min_answers=1)
    replica.answer(answers=2000, **(own if bad else {}))
    assert replica.look().action == ("failed" if bad else "rollout")


@pytest.mark.parametrize(
    ("bounds", "own"), [({"p99_ms": 50}, "slow"), ({"errors": 0.01}, "errors")]
)
@pytest.mark.parametrize(
    ("steps", "live", "action"),
    [([10, 50], 0, "failed"), ([10, 50], 1000, "pause"), ([100], 1000, "failed")],
)
def test_what_the_live_arm_suffers_too_fails_no_candidate(
    replica: Replica, bounds: Any, own: str, steps: Any, live: int, action: str
) -> None:
    replica.start(steps=steps, bounds=bounds, min_answers=1)
    replica.answer(answers=2000, arm="live", **{own: live})
    replica.answer(answers=2000, **{own: 1000})
    assert replica.look().action == action


@pytest.mark.parametrize("wanted", ["promote", "pause"])
def test_answers_that_overload_has_degraded_pass_no_bound_unseen(
    replica: Replica, wanted: str
) -> None:
    replica.start(on_inconclusive=wanted)
    replica.answer(audits=2000, answers=3000, degraded=1000)
    paused = replica.look()
    assert (paused.action, replica.percent) == ("pause", 10)
    assert paused.why is not None
    assert "1000 of 3000 answers" in paused.why


@pytest.mark.parametrize(
    ("wanted", "action", "percent"),
    [("pause", "pause", 10), ("promote", "rollout", 50), ("abort", "abort", 0)],
)
def test_what_follows_a_step_that_tells_too_little_is_chosen(
    replica: Replica, wanted: str, action: str, percent: float
) -> None:
    replica.start(on_inconclusive=wanted)
    replica.answer(audits=10, answers=100)
    assert replica.look().action == action
    assert replica.percent == percent


def test_no_step_is_passed_of_which_nothing_is_known(replica: Replica) -> None:
    replica.start(on_inconclusive="promote")
    replica.answer(audits=0, answers=1000)  # a server that has no time for audits
    assert replica.look().action == "pause"


def test_paused_rollout_keeps_its_share_until_it_is_resumed_and_still_fails(
    replica: Replica,
) -> None:
    replica.start()
    replica.move("pause")
    replica.answer(audits=1000)
    assert replica.look().action == "pause"
    assert replica.percent == 10
    with pytest.raises(RolloutConflict):
        replica.move("pause")
    replica.move("resume", answered=1000)
    assert replica.look().action == "resume"  # its step has begun anew
    with pytest.raises(RolloutConflict):
        replica.move("resume")
    replica.move("pause")
    replica.answer(audits=1000, differ=500)
    assert replica.look().action == "failed"


def test_readers_share_one_judgement(replica: Replica) -> None:
    rollout = replica.start().running
    assert rollout is not None
    judged = replica.watch.latest(rollout)
    assert replica.watch.latest(rollout) is judged
    replica.answer(audits=10)
    replica.look()
    assert replica.watch.latest(rollout).answered == 10


def test_step_holds_as_long_as_it_should(replica: Replica) -> None:
    replica.start(hold_s=3600)
    replica.answer(audits=1000)
    assert replica.look().action == "rollout"
    assert replica.percent == 10


@pytest.mark.parametrize("action", ["put", "guardrail"])
def test_any_other_change_midway_ends_the_rollout_and_says_so(
    replica: Replica, action: Any
) -> None:
    replica.start()
    replica.policy.change(CANDIDATE, None, Change("ops", None, action))
    entry = replica.policy.current
    assert entry.rollout is not None
    assert (entry.rollout.state, entry.rollout.why) == ("superseded", f"version 3: {action}")
    assert (entry.policy, replica.policy.live.candidate) == (CANDIDATE, None)
    replica.policy.change(LIVE, None)
    assert replica.policy.current.rollout is None  # it is told once


def test_another_config_midway_ends_the_rollout(replica: Replica) -> None:
    replica.start()
    replica.policy.set_baseline(CANDIDATE, "config")
    assert replica.policy.current.rollout is not None
    assert replica.policy.current.rollout.state == "superseded"


def test_restart_midway_goes_on_with_what_the_store_has(store: Database) -> None:
    before = Replica(store, "before")
    before.start()
    before.answer(audits=1000)
    after = Replica(store, "after")
    assert after.policy.live.candidate is not None
    assert after.policy.live.candidate.entry.policy == CANDIDATE
    assert after.look().action == "rollout"
    assert after.percent == 50


def test_replica_that_joins_midway_takes_the_same_requests_and_its_counts_are_added(
    store: Database,
) -> None:
    one = Replica(store, "one")
    one.start(hold_s=600)
    other = Replica(store, "other")
    values = [f"client {number}" for number in range(1000)]
    mine, theirs = one.policy.current.running, other.policy.current.running
    assert mine is not None
    assert theirs is not None
    assert [mine.takes(each) for each in values] == [theirs.takes(each) for each in values]
    one.answer(audits=60, differ=9)
    assert one.look().action == "rollout"
    other.answer(audits=60, differ=9)  # too few of each alone
    assert one.look().action == "failed"


def test_replicas_that_see_the_same_make_one_move(store: Database) -> None:
    replicas = [Replica(store, str(number)) for number in range(8)]
    replicas[0].start()
    for each in replicas:
        each.policy.refresh()
    replicas[0].answer(audits=100, differ=50)
    barrier = Barrier(8)

    def look(replica: Replica) -> None:
        barrier.wait()
        replica.watch.look()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(look, replicas))
    assert [action for _, action, _ in replicas[0].log()] == ["rollout", "failed"]


def test_who_follows_at_one_step_follows_at_all_later_ones(replica: Replica) -> None:
    rollout = replica.start(steps=(7, 33.3)).running
    assert rollout is not None
    values = [str(number) for number in range(20_000)]
    first = {value for value in values if rollout.takes(value)}
    second = {value for value in values if rollout.at_step(1, 0, rollout.since).takes(value)}
    assert first < second
    assert len(first) / len(values) == pytest.approx(0.07, abs=0.01)
    assert len(second) / len(values) == pytest.approx(0.333, abs=0.015)


def test_second_rollout_is_refused_while_one_runs(replica: Replica) -> None:
    replica.start()
    with pytest.raises(RolloutConflict):
        replica.start()
    replica.move("abort")
    with pytest.raises(RolloutConflict):
        replica.move("promote")
    replica.start()
    assert replica.percent == 10


def test_candidate_that_the_model_cannot_follow_is_refused_at_start(replica: Replica) -> None:
    out_of_reach = Policy.model_validate({"default": {"target": {"max_ms": 1e-9}}})
    start = partial(started, plan=Plan.model_validate(HALF), candidate=out_of_reach)
    with pytest.raises(TargetOutOfReach):
        replica.policy.change(start, None, Change(action="rollout"))
    assert replica.policy.current.version == 1


def test_ended_rollout_is_judged_until_its_last_answers_are_counted(
    store: Database, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Mock(side_effect=store.counts)
    monkeypatch.setattr(store, "counts", reads)
    for _ in range(2):
        ended = replica.start().rollout
        assert ended is not None
        replica.move("abort")
        replica.look()
        late = Tally(traffic=Traffic(requests=7, exits={1: 7}))
        replica._count(AuditKey.of_arm(ended.arm("candidate")), late)
        replica.look()
        assert replica.watch.latest(ended).answered == 7
        for _ in range(100):
            replica.look()
        reads.reset_mock()
        replica.look()
        reads.assert_not_called()


def test_replica_that_cannot_follow_the_candidate_says_so_and_moves_nothing(
    store: Database,
) -> None:
    replica = Replica(store)
    start = replica.start()
    assert start.running is not None
    other = Policy.model_validate({"default": {"rule": "layer", "layer": 9}})
    rollout = start.running.model_copy(update={"candidate": other})
    store.append("tiny", start.model_copy(update={"version": 3, "rollout": rollout}))
    replica.answer(audits=1000, differ=900)
    assert replica.look() == start
    assert "layer 9 has no exit" in replica.policy.problem
    for move in (partial(replica.move, "promote"), partial(replica.move, "abort"), replica.start):
        with pytest.raises(RolloutConflict, match="layer 9 has no exit"):
            move()
    assert store.policies("tiny").newest == 3


def test_move_is_made_from_the_version_that_it_is_based_on(replica: Replica) -> None:
    replica.start()
    with pytest.raises(VersionConflict):
        replica.move("promote", based_on=1)
