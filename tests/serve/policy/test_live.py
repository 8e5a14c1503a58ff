import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from serve.api.replicas import Ack
from serve.bundle.loader import Bundle
from serve.errors import InvalidRule, TargetOutOfReach, VersionConflict
from serve.policy.database import Database
from serve.policy.document import DEFAULT, Policy
from serve.policy.entry import VersionedPolicy
from serve.policy.live import LivePolicy
from serve.policy.store import Log
from tests.serve.support.ladders import served
from tests.support.tiny import POLICY


def stored(store: Database) -> VersionedPolicy:
    return store.policies("tiny").entries[-1]


MakeLive = Callable[..., LivePolicy]


def leave_at(layer: int) -> Policy:
    return Policy.model_validate({"default": {"rule": "layer", "layer": layer}})


@pytest.fixture
def make_live(bundle: Bundle) -> MakeLive:
    """Make replicas' live policies over the same store."""

    def make(
        store: Database, baseline: Policy | None = None, ms_per_layer: float = 1.0
    ) -> LivePolicy:
        live = LivePolicy("tiny", served(ms_per_layer), store)
        source = "config" if baseline else "bundle"
        live.set_baseline(baseline or bundle.manifest.policy, source)
        return live

    return make


def test_what_keeps_a_replica_from_the_newest_policy_is_told(make_live: MakeLive) -> None:
    store = Database()
    live, slow = make_live(store), make_live(store, ms_per_layer=1e6)
    target = {"default": {"target": {"max_ms": 1000}}}
    live.change(Policy.model_validate(target), None)
    assert Ack.of("a", live) == Ack("a", 2)
    told = Ack.of("slow", slow)
    assert told.version == 2
    assert (told.problem or "").startswith("default.target: ")
    entry = VersionedPolicy(version=3, policy=leave_at(9), source="api", baseline="")
    store.append("tiny", entry)  # of a replica with another bundle
    problem = "default: layer 9 has no exit: the model has exits at 1, 2, 3, 4"
    assert Ack.of("a", live) == Ack("a", 2, problem)
    store.append("tiny", entry.model_copy(update={"version": 4, "policy": leave_at(2)}))
    assert Ack.of("a", live) == Ack("a", 4)


def test_replicas_that_start_together_agree(make_live: MakeLive) -> None:
    store, start = Database(), Barrier(8)

    def make(_: int) -> VersionedPolicy:
        start.wait()
        return make_live(store).current

    with ThreadPoolExecutor(8) as pool:
        entries = set(entry.model_dump_json() for entry in pool.map(make, range(8)))
    assert len(entries) == 1
    assert stored(store).version == 1


def test_replacement_reaches_the_other_replica_with_a_refresh(make_live: MakeLive) -> None:
    store = Database()
    one, other = make_live(store), make_live(store)
    old, new, _ = one.change(leave_at(2), based_on=1)
    assert (new.version, new.source, one.current) == (2, "api", new)
    assert other.current == old
    with pytest.raises(VersionConflict):
        other.change(leave_at(3), based_on=1)
    assert stored(store) == other.current == other.refresh() == new


class RacingStore(Database):
    """A store to which another replica appends just before, or just after, our own append."""

    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None

    def append(self, model: str, entry: VersionedPolicy) -> bool:
        before, after, self.before, self.after = self.before, self.after, None, None
        if before:
            before()
        added = super().append(model, entry)
        if after:
            after()
        return added


def test_replacement_of_any_version_is_tried_again_when_it_loses_the_race(
    make_live: MakeLive,
) -> None:
    store, races = RacingStore(), itertools.count(1)
    live, rival = make_live(store), make_live(store)

    def first() -> None:
        race = next(races)
        rival.change(leave_at(3 + race % 2), based_on=None)
        store.before = first if race != 9 else None

    store.before = first
    old, new, _ = live.change(leave_at(2), based_on=None)
    assert (old.policy, old.version, new.version) == (leave_at(4), 10, 11)
    assert live.current == stored(store) == new
    store.before = first
    with pytest.raises(VersionConflict):
        live.change(Policy(), based_on=None)


def test_baseline_that_loses_the_race_takes_what_has_won(make_live: MakeLive) -> None:
    store = RacingStore()
    store.before = lambda: make_live(store, leave_at(3)).change(leave_at(4), based_on=1)
    live = make_live(store, leave_at(3))
    # The rival's policy builds on the same baseline.
    assert (live.current.version, live.current.policy) == (2, leave_at(4))


def test_replacement_overtaken_by_a_newer_one_does_not_bring_the_older_back(
    make_live: MakeLive,
) -> None:
    store = RacingStore()
    live = make_live(store)
    store.after = lambda: live.change(leave_at(3), based_on=2)
    assert live.change(leave_at(2), based_on=None).new.version == 2
    assert (live.current.version, live.current.policy) == (3, leave_at(3))


@pytest.mark.parametrize(
    ("later", "layer", "version", "source"), [(1, 2, 2, "api"), (3, 3, 3, "config")]
)
def test_only_a_new_baseline_replaces_the_override_of_the_old(
    make_live: MakeLive, later: int, layer: int, version: int, source: str
) -> None:
    store = Database()
    running = make_live(store, leave_at(1))
    running.change(leave_at(2), based_on=None)
    starting = make_live(store, leave_at(later))
    running.set_baseline(leave_at(later), "config")
    for live in (running, starting):
        assert live.current.policy == leave_at(layer)
        assert (live.current.version, live.current.source) == (version, source)


def within_ms(bound: float) -> Policy:
    return Policy.model_validate({"default": {"target": {"max_ms": bound}}})


@pytest.mark.parametrize(
    ("policy", "error"), [(leave_at(9), InvalidRule), (within_ms(0.5), TargetOutOfReach)]
)
def test_policy_that_cannot_be_followed_changes_nothing(
    make_live: MakeLive, policy: Policy, error: type[Exception]
) -> None:
    store = Database()
    live = make_live(store)
    before = live.current
    with pytest.raises(error):
        live.set_baseline(policy, "config")
    with pytest.raises(error):
        live.change(policy, based_on=None)
    assert live.current == stored(store) == before


def test_target_of_a_stored_policy_is_kept_as_well_as_a_slower_replica_can(
    make_live: MakeLive, caplog: pytest.LogCaptureFixture
) -> None:
    store = Database()
    fast, slow = make_live(store), make_live(store, ms_per_layer=3.0)
    fast.change(within_ms(2.0), based_on=1)
    assert slow.refresh() == fast.current
    taken = [live.live.applied.named[DEFAULT].resolution for live in (fast, slow)]
    assert [found.rung.expected_ms for found in taken] == pytest.approx([2.0, 4.05])
    assert "tiny: policy 2: default: nothing here has max_ms 2.0; the nearest is" in caplog.text
    starting = make_live(store, within_ms(2.0))
    late = make_live(store, within_ms(2.0), ms_per_layer=3.0)
    assert (late.current, late.current.source) == (starting.current, "config")


def test_stored_policy_the_model_cannot_follow_any_more_is_ignored_and_can_be_replaced(
    make_live: MakeLive, caplog: pytest.LogCaptureFixture
) -> None:
    store = Database()
    live = make_live(store)
    for version in (7, 9):
        alien = live.current.model_copy(update={"version": version, "policy": leave_at(9)})
        assert store.append("tiny", alien)
        assert live.refresh().policy == POLICY
        assert f"stored policy {version} is ignored: default: layer 9 has no" in caplog.text
        assert make_live(store).current.policy == POLICY
        live.refresh()
        assert live.current.version == version + 1
    assert store.append("tiny", alien.model_copy(update={"version": 11}))
    assert live.change(leave_at(2), based_on=10).new.version == 12


def test_refresh_never_goes_back(make_live: MakeLive, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Database()
    live = make_live(store)
    ahead = live.change(leave_at(2), based_on=None).new
    before = ahead.model_copy(update={"version": 1})
    monkeypatch.setattr(store, "policies", lambda *_: Log(1, [before]))  # what it had is lost
    assert live.refresh() == ahead


def test_entries_say_since_when_each_profile_asks_for_the_same(make_live: MakeLive) -> None:
    live = make_live(Database())
    fast, slow = {"rule": "layer", "layer": 1}, {"rule": "layer", "layer": 3}

    def put(**profiles: Any) -> dict[str, int]:
        policy = {"default": "quick", "profiles": profiles}
        return live.change(Policy.model_validate(policy), None).new.since

    assert put(quick=fast) == {"default": 2, "quick": 2}
    assert put(quick=fast, slow=slow) == {"default": 2, "quick": 2, "slow": 3}
    assert put(quick=slow, slow=slow) == {"default": 4, "quick": 4, "slow": 3}
    assert put(quick=fast) == {"default": 5, "quick": 5}, "not that of version 2"
    flagged = {"exit": fast, "flag": {"negative": 0.8}}
    assert put(quick=flagged) == {"default": 6, "quick": 6}
    live.set_baseline(Policy.model_validate({"default": fast}), "config")
    assert live.current.since == {"default": 7}
