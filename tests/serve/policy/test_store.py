"""What every store does, of one process; that of Ray is in `tests/serve/cluster`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from serve.policy.document import Policy
from serve.policy.entry import Change, VersionedPolicy
from serve.policy.file_store import FileStore
from serve.policy.store import KEPT_COUNTS, KEPT_VERSIONS, MemoryStore, Store

MakeStore = Callable[[], Store]
PUT = Change()


@pytest.fixture(params=["memory", "file"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    if request.param == "memory":
        return MemoryStore
    return lambda: FileStore(tmp_path, {"m": "1", "other": "2"})


def entry(version: int, change: Change = PUT) -> VersionedPolicy:
    policy = Policy.model_validate({"default": {"rule": "layer", "layer": version}})
    return VersionedPolicy.of(version, policy, change.source, "", change)


def versions(store: Store, model: str = "m") -> list[int]:
    return [each.version for each in store.history(model, 2 * KEPT_VERSIONS)]


def test_store_has_each_entry_as_it_was_put(make_store: MakeStore) -> None:
    store, entries = make_store(), [entry(1), entry(2, Change("ops", "slow", "patch")), entry(5)]
    assert (store.latest("m"), store.newest_version("m"), store.history("m", 9)) == (None, 0, [])
    assert all(store.append("m", each) for each in entries)
    assert not any(store.append("m", entry(version)) for version in (1, 2, 4, 5))
    assert (store.latest("m"), store.newest_version("m")) == (entries[-1], 5)
    assert store.history("m", 2) == [entries[2], entries[1]]
    assert [store.entry("m", version) for version in (1, 2, 3, 5)] == [*entries[:2], None, entry(5)]
    assert store.entry("other", 1) is None


def test_store_keeps_the_last_versions_and_the_newest_baseline(make_store: MakeStore) -> None:
    store, baseline = make_store(), Change("bundle", None, "baseline")
    for version in range(1, KEPT_VERSIONS + 9):
        store.append("m", entry(version, baseline if version in (1, 3) else PUT))
    newest = list(range(KEPT_VERSIONS + 8, 8, -1))
    assert versions(store) == [*newest, 3]
    assert store.entry("m", 3) == store.history("m", 999)[-1]


def test_store_has_the_counts_of_each_replica_and_drops_the_oldest(make_store: MakeStore) -> None:
    store = make_store()
    assert store.counts("m") == {}
    for number in range(KEPT_COUNTS):
        store.put_counts("m", f"r{number}", b'{"n":%d}' % number)
    store.put_counts("m", "r0", b'{"n":7}')
    assert len(store.counts("m")) == KEPT_COUNTS
    store.put_counts("m", "new", b"{}")
    counts = store.counts("m")
    assert len(counts) == KEPT_COUNTS
    assert (counts["r0"], counts["r2"], counts["new"]) == (b'{"n":7}', b'{"n":2}', b"{}")
    assert "r1" not in counts
    assert store.counts("other") == {}


def test_of_replicas_that_raise_the_same_alarm_one_is_first(make_store: MakeStore) -> None:
    store = make_store()
    store.put_counts("m", "r", b"[]")
    assert store.note_alarm("m", "a")
    assert not store.note_alarm("m", "a")
    assert store.note_alarm("m", "b")
    store.put_counts("m", "r", b"[]")
    assert not store.note_alarm("m", "a")
    assert store.counts("m") == {"r": b"[]"}


def test_entry_of_an_earlier_release_is_read() -> None:
    old = '{"version":3,"policy":{"default":{"rule":"never"}},"source":"%s","baseline":"b"}'
    for source, action in (("api", "put"), ("config", "baseline")):
        read = VersionedPolicy.model_validate_json(old % source)
        assert (read.at, read.by, read.why, read.action) == ("", "", None, action)
