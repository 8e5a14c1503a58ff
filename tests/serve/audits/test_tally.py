import pytest

from serve.audits.counts import Counts, Key
from serve.audits.tally import MAX_DAYS, Compared, Seen, Tally


def of_day(day: int, audited: int = 10, differ: int = 1) -> Tally:
    seen, date = Seen(audited, differ), f"2026-01-{day:02}"
    return Tally(since=f"{date}T12:00:00Z", days={date: seen}, **seen._asdict())


def total(*tallies: Tally) -> Tally:
    first, *others = tallies
    for other in others:
        first = first + other
    return first


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


def test_a_text_that_is_compared_is_counted_today_and_in_the_whole() -> None:
    tally = total(*[Tally.of(Compared(True, flagged=True), 2, early=True)] * 3)
    assert tally.seen == Seen(3, 3, 0, 3, 0, 0)
    assert sum(seen.audited for seen in tally.days.values()) == 3
    assert all(tally.since.startswith(day) for day in list(tally.days)[:1])


def test_days_survive_a_store() -> None:
    counts = Counts()
    counts.add(Key("fast"), total(of_day(3), of_day(4)))
    assert dict(Counts.from_json(counts.to_json())) == dict(counts)


@pytest.mark.parametrize("since", ["", "2026-01-04T00:00:00Z"])
def test_nothing_is_recent_on_the_first_day(since: str) -> None:
    assert list(Tally(since=since, days={"2026-01-04": Seen(9, 1)}).recent()) == []
