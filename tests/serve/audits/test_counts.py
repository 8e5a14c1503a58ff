import pytest

from serve.audits.counts import (
    MAX_DAYS,
    MAX_KEYS,
    AuditCounts,
    AuditKey,
    Bound,
    Promise,
    Seen,
    Tally,
    counts_of_all,
)
from serve.policy.database import Database


def promise(since: int = 1) -> Promise:
    bound = Bound(loss="disagreement", epsilon=0.01, delta=0.05)
    return Promise(bounds=(bound,), rule='{"rule":"confidence","threshold":0.9}', since=since)


BALANCED, AGAIN = AuditKey("balanced", promise()), AuditKey("balanced", promise(since=2))
DIFFERS, AGREES = Seen(1, 1, 1), Seen(1)
OLD = Tally(since="2026-01-01T00:00:00Z", audited=1)


def counted(*found: Seen, layer: int = 3, skipped: int = 0) -> Tally:
    total = Tally(skipped=skipped)
    for each in found:
        total += Tally.of(each, layer, early=layer < 6)
    return total


def of_day(day: int, audited: int = 10, differ: int = 1) -> Tally:
    seen, date = Seen(audited, differ), f"2026-01-{day:02}"
    return Tally(since=f"{date}T12:00:00Z", days={date: seen}, **seen._asdict())


def total(*tallies: Tally) -> Tally:
    first, *others = tallies
    for other in others:
        first = first + other
    return first


def test_counts_of_all_replicas_add_up_those_that_cannot_be_read_left_out() -> None:
    store = Database()
    one, other = counted(DIFFERS, AGREES, skipped=2), counted(AGREES, layer=6, skipped=3)
    stored = [{BALANCED: one}, {BALANCED: other + OLD, AGAIN: one}, {AuditKey("balanced"): other}]
    for replica, counts in enumerate(stored):
        store.put_counts("m", str(replica), AuditCounts(counts).to_json())
    store.put_counts("m", "broken", b"[1]")
    for _ in range(2):  # what was read once is as it was
        found = counts_of_all("m", store)
        assert found == {BALANCED: one + other + OLD, AGAIN: one, AuditKey("balanced"): other}
    tally = found[BALANCED]
    assert (tally.since, tally.audited, tally.early, tally.skipped) == (OLD.since, 4, 2, 5)
    assert (tally.differ, tally.score_differ) == (1, 1)
    assert tally.by_exit == {3: (2, 1), 6: (1, 0)}


def test_what_each_loss_is_a_share_of() -> None:
    seen = Seen(audited=10, differ=4, score_differ=3, flagged=6, missed=2, false_alarms=1)
    assert seen.observed("disagreement") == (4, 10)
    assert seen.observed("score") == (3, 10)
    assert seen.observed("missed") == (2, 6)
    assert seen.observed("false_alarms") == (1, 4)
    assert seen.observed("metric") is seen.observed("reference") is None


def test_what_is_written_is_read_also_with_fields_of_a_later_version() -> None:
    counts = AuditCounts({BALANCED: counted(DIFFERS, AGREES, skipped=1)})
    counts.add(AuditKey("live", None, "of a rollout"), total(of_day(3), of_day(4)))
    written = counts.to_json()
    assert AuditCounts.from_json(written) == counts
    later = written.replace(b'"early":2', b'"early":2,"unheard":[1]')
    assert AuditCounts.from_json(later) == counts


def test_what_the_first_release_with_audits_has_written_is_read() -> None:
    bound = '{"loss":"disagreement","epsilon":0.01,"delta":0.05}'
    kept = (
        f'[{{"profile":"balanced","promise":{{"bounds":[{bound}],'
        '"rule":"{\\"rule\\":\\"confidence\\",\\"threshold\\":0.9}","since":1},'
        '"tally":{"since":"2026-01-01T00:00:00Z","audited":2,"early":2,"differ":1,'
        '"score_differ":0,"flagged":0,"missed":0,"false_alarms":0,"by_exit":{"3":[2,1]},'
        '"skipped":4,"days":{"2026-01-01":[2,1,0,0,0,0]}}}]'
    )
    tally = AuditCounts.from_json(kept.encode())[BALANCED]
    assert (tally.seen, tally.skipped, tally.by_exit) == (Seen(2, 1), 4, {3: (2, 1)})
    assert AuditCounts({BALANCED: tally}).to_json() == kept.encode()


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'[{"profile":"a"}]', b"\xff"])
def test_damaged_counts_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        AuditCounts.from_json(data)


def test_keys_are_bounded_and_those_counted_in_last_stay() -> None:
    counts = AuditCounts({BALANCED: Tally(audited=1)})
    for since in range(MAX_KEYS + 50):
        counts.add(AuditKey("balanced", promise(100 + since)), Tally(audited=1))
        counts.add(BALANCED, Tally(audited=1))
    assert len(counts) == MAX_KEYS
    assert counts[BALANCED].audited == MAX_KEYS + 51


def test_counts_since_the_begin_of_each_day_are_known_but_for_the_first() -> None:
    tally = total(of_day(3, differ=0), of_day(4, 20, 2), of_day(4, 5, 1), of_day(7, 100, 9))
    assert list(tally.recent()) == [(4, Seen(100, 9)), (1, Seen(125, 12))]
    assert tally.seen == Seen(135, 12)


def test_days_before_the_last_eight_are_counted_in_the_whole_alone() -> None:
    days = [of_day(day) for day in range(1, 21)]
    one, other = total(*days[::2]), total(*days[1::2])  # as two replicas count them
    for tally in (one + other, total(*days)):
        assert [day for day, _ in tally.recent()] == list(range(19, 19 - MAX_DAYS, -1))
        assert [seen.audited for _, seen in tally.recent()] == list(range(10, 90, 10))
        assert tally.audited == 200


@pytest.mark.parametrize("since", ["", "2026-01-04T00:00:00Z"])
def test_nothing_is_recent_on_the_first_day(since: str) -> None:
    assert list(Tally(since=since, days={"2026-01-04": Seen(9, 1)}).recent()) == []
