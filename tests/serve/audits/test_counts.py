import pytest

from serve.audits.counts import MAX_BYTES, MAX_KEYS, Bound, Counts, Key, Promise
from serve.audits.tally import Compared, Tally


def promise(epsilon: float = 0.01, since: int = 1) -> Promise:
    bound = Bound(loss="disagreement", epsilon=epsilon, delta=0.05)
    return Promise(bounds=(bound,), rule='{"rule":"confidence","threshold":0.9}', since=since)


BALANCED = Key("balanced", promise())
DIFFERS, AGREES = Compared(True, True), Compared(False)


def counted(*found: Compared, key: Key = BALANCED, layer: int = 3, skipped: int = 0) -> Counts:
    counts = Counts()
    for each in found:
        counts.add(key, Tally.of(each, layer, early=layer < 6))
    counts.add(key, Tally(skipped=skipped))
    return counts


def test_counts_of_replicas_add_up() -> None:
    both = counted(DIFFERS, AGREES, skipped=2) + counted(AGREES, layer=6, skipped=3)
    tally = both[BALANCED]
    assert (tally.audited, tally.early, tally.differ, tally.score_differ) == (3, 2, 1, 1)
    assert tally.by_exit == {3: (2, 1), 6: (1, 0)}
    assert tally.skipped == 5
    assert dict(both + Counts()) == dict(both)


def test_the_sum_leaves_its_parts_alone_and_is_as_old_as_the_older_one() -> None:
    one, other = counted(DIFFERS), counted(DIFFERS)
    old = Tally(since="2026-01-01T00:00:00Z", audited=1)
    other.add(BALANCED, old)
    assert (one + other)[BALANCED].since == old.since
    assert (one + other)[BALANCED].audited == 3
    assert (one[BALANCED].audited, other[BALANCED].audited) == (1, 2)


def test_another_promise_is_counted_anew() -> None:
    again = Key("balanced", promise(since=2))
    both = counted(DIFFERS) + counted(AGREES, key=again) + counted(AGREES, key=Key("balanced"))
    assert [both[key].differ for key in (BALANCED, again, Key("balanced"))] == [1, 0, 0]


def test_what_each_loss_is_a_share_of() -> None:
    tally = Tally(
        since="", audited=10, differ=4, score_differ=3, flagged=6, missed=2, false_alarms=1
    )
    assert tally.seen.observed("disagreement") == (4, 10)
    assert tally.seen.observed("score") == (3, 10)
    assert tally.seen.observed("missed") == (2, 6)
    assert tally.seen.observed("false_alarms") == (1, 4)
    assert tally.seen.observed("metric") is None
    assert tally.seen.observed("reference") is None


def test_what_is_written_is_read_also_with_fields_of_a_later_version() -> None:
    counts = counted(DIFFERS, AGREES, skipped=1) + counted(AGREES, key=Key("request"))
    written = counts.to_json()
    assert dict(Counts.from_json(written)) == dict(counts)
    later = written.replace(b'"audited":2', b'"audited":2,"unheard":[1]')
    assert dict(Counts.from_json(later)) == dict(counts)


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'[{"profile":"a"}]', b"\xff"])
def test_damaged_counts_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        Counts.from_json(data)


def test_keys_and_bytes_are_bounded_and_those_counted_in_last_stay() -> None:
    counts = counted(DIFFERS)
    for since in range(MAX_KEYS + 50):
        counts.add(Key("balanced", promise(since=100 + since)), Tally(audited=1))
        counts.add(BALANCED, Tally(audited=1))
    assert len(counts) == MAX_KEYS
    written = counts.to_json()
    assert len(written) <= MAX_BYTES
    kept = Counts.from_json(written)
    assert kept[BALANCED].audited == MAX_KEYS + 51
    assert 100 < len(kept) <= MAX_KEYS
