from hypothesis import given
from hypothesis import strategies as st

from serve.scheduler import Scheduler, WaveLimits
from serve.wave import Wave
from tests.serve.fake_runner import fake_row

EXITS = (1, 2, 3, 4)
limits = st.builds(
    WaveLimits,
    max_rows=st.integers(1, 8),
    max_tokens=st.integers(8, 64),
    max_stretch=st.floats(1, 3),
    max_overtakes=st.integers(0, 4),
)


def keys(waves: list[Wave]) -> list[int]:
    return [row.tag for wave in waves for row in wave.rows]


def deeper(scheduler: Scheduler, waves: list[Wave]) -> None:
    """Put the waves back one deeper, nobody having left."""
    for wave in waves:
        wave.depth += 1
        scheduler.put_back(wave)


def test_equals_go_in_the_order_they_came() -> None:
    scheduler = Scheduler(EXITS, WaveLimits(max_rows=2))
    scheduler.add([fake_row(key) for key in (1, 2, 3)])
    assert keys(scheduler.next_waves()) == [1, 2]
    assert keys(scheduler.next_waves()) == [3]


def test_a_wave_holds_rows_of_like_length_and_the_oldest_goes_first() -> None:
    scheduler = Scheduler(EXITS, WaveLimits(max_stretch=1.5))
    scheduler.add([fake_row(1, 40), fake_row(2, 4), fake_row(3, 50), fake_row(4, 5)])
    assert keys(scheduler.next_waves()) == [1, 3]
    assert keys(scheduler.next_waves()) == [2, 4]


def test_a_row_longer_than_the_token_budget_still_runs() -> None:
    scheduler = Scheduler(EXITS, WaveLimits(max_tokens=8))
    scheduler.add([fake_row(1, 50), fake_row(2, 50)])
    assert keys(scheduler.next_waves()) == [1]


def test_new_rows_enter_while_others_are_deeper() -> None:
    scheduler = Scheduler(EXITS)
    scheduler.add([fake_row(1)])
    deeper(scheduler, scheduler.next_waves())
    scheduler.add([fake_row(2)])
    assert keys(scheduler.next_waves()) == [2]


def test_waves_that_meet_at_one_depth_are_joined() -> None:
    scheduler = Scheduler(EXITS)
    scheduler.add([fake_row(1)])
    deeper(scheduler, scheduler.next_waves())
    scheduler.add([fake_row(2)])
    deeper(scheduler, scheduler.next_waves())
    assert keys(scheduler.next_waves()) == [1, 2]
    assert not scheduler


def test_waves_too_different_in_length_stay_apart() -> None:
    scheduler = Scheduler(EXITS)
    scheduler.add([fake_row(1, 3)])
    deeper(scheduler, scheduler.next_waves())
    scheduler.add([fake_row(2, 60)])
    deeper(scheduler, scheduler.next_waves())
    assert keys(scheduler.next_waves()) == [1]


def test_a_wave_is_not_overtaken_for_ever() -> None:
    scheduler = Scheduler(EXITS, WaveLimits(max_overtakes=2, max_rows=1))
    scheduler.add([fake_row(1)])
    deeper(scheduler, scheduler.next_waves())
    scheduler.add([fake_row(key) for key in range(2, 10)])
    order = []
    for _ in range(3):
        waves = scheduler.next_waves()
        order += keys(waves)
        deeper(scheduler, waves)
    assert order == [2, 3, 1]


@given(limits, st.lists(st.integers(1, 32), min_size=1, max_size=40), st.data())
def test_every_row_goes_through_every_depth_once_and_no_wave_breaks_the_limits(
    bounds: WaveLimits, lengths: list[int], data: st.DataObject
) -> None:
    scheduler = Scheduler(EXITS, bounds)
    rows = [fake_row(key, length) for key, length in enumerate(lengths, 1)]
    depths = {row.tag: 0 for row in rows}
    while rows or scheduler:
        arriving = data.draw(st.integers(0 if scheduler else 1, 5))
        scheduler.add(rows[:arriving])
        rows = rows[arriving:]
        if not scheduler:
            continue
        waves = scheduler.next_waves()
        check_limits(waves, bounds)
        for wave in waves:
            for row in wave.rows:
                assert depths[row.tag] == wave.depth
                depths[row.tag] += 1
            wave.depth += 1
            if wave.depth < len(EXITS):
                scheduler.put_back(wave)
    assert set(depths.values()) == {len(EXITS)}


def check_limits(waves: list[Wave], bounds: WaveLimits) -> None:
    assert len({wave.depth for wave in waves}) == 1
    num_rows = sum(len(wave.rows) for wave in waves)
    longest = max(wave.longest for wave in waves)
    assert num_rows <= bounds.max_rows
    assert num_rows == 1 or num_rows * longest <= bounds.max_tokens


@given(limits)
def test_no_row_starves_under_a_steady_stream_of_new_ones(bounds: WaveLimits) -> None:
    scheduler = Scheduler(EXITS, bounds)
    scheduler.add([fake_row(1, 7)])
    turns = 0
    while True:
        turns += 1
        scheduler.add([fake_row(1000 + turns)])
        waves = scheduler.next_waves()
        for wave in waves:
            wave.depth += 1
            done = wave.depth == len(EXITS)
            if done and any(row.tag == 1 for row in wave.rows):
                return
            if not done:
                scheduler.put_back(wave)
        # Each of its runs waits for at most max_overtakes runs, and for those held longer.
        assert turns <= len(EXITS) * (bounds.max_overtakes + 1) * (bounds.max_overtakes + 2)
