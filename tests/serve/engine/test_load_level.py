"""The level by a simulated queue and clock."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.engine.load_level import CALM_S, CALM_SHARE, RISE_EVERY_S, LoadLevel

BOUND_S, MOST = 0.2, 5


def shown(level: LoadLevel, queues_s: list[float], every_s: float, begin_s: float = 0.0) -> int:
    """Show one queue after the other; return the last level."""
    for place, queue_s in enumerate(queues_s):
        level.show(queue_s, BOUND_S, MOST, begin_s + place * every_s)
    return level.level


def test_a_long_queue_raises_it_rung_by_rung_up_to_the_most() -> None:
    level, found = LoadLevel(), []
    for step in range(8):
        found.append(level.show(1.0, BOUND_S, MOST, step * RISE_EVERY_S * 1.01))
    assert found == [1, 2, 3, 4, 5, 5, 5, 5]


def test_many_looks_in_a_row_raise_it_once() -> None:
    assert shown(LoadLevel(), [1.0] * 10, RISE_EVERY_S / 20) == 1


def test_between_the_bounds_it_stays() -> None:
    level = LoadLevel()
    shown(level, [1.0, 1.0], RISE_EVERY_S * 1.01)
    between = BOUND_S * (1 + CALM_SHARE) / 2
    assert shown(level, [between] * 1000, 0.1, begin_s=1.0) == 2


def test_a_short_queue_lowers_it_one_by_one_and_one_long_look_starts_the_wait_anew() -> None:
    level = LoadLevel()
    shown(level, [1.0, 1.0, 1.0], RISE_EVERY_S * 1.01)
    calm = [level.show(0.0, BOUND_S, MOST, 1 + share * CALM_S) for share in (0, 0.9, 1.1, 1.9)]
    assert calm == [3, 3, 2, 2]
    level.show(BOUND_S, BOUND_S, MOST, 1 + 2.9 * CALM_S)  # not above, but no calm
    assert level.show(0.0, BOUND_S, MOST, 1 + 3.5 * CALM_S) == 1


def test_after_a_pause_without_requests_it_is_what_the_pause_has_made_it() -> None:
    level = LoadLevel()
    shown(level, [1.0] * 5, RISE_EVERY_S * 1.01)
    assert level.show(0.0, BOUND_S, MOST, 1000.0) == 0


def test_a_lower_most_holds_at_once() -> None:
    level = LoadLevel()
    shown(level, [1.0] * 5, RISE_EVERY_S * 1.01)
    assert level.show(1.0, BOUND_S, 2, 1.0) == 2


def looks() -> st.SearchStrategy[list[tuple[float, float]]]:
    return st.lists(st.tuples(st.floats(0, 3), st.floats(0, 5)), max_size=60)


@given(looks())
def test_it_never_rises_by_a_queue_within_the_bound_nor_leaves_its_range(
    steps: list[tuple[float, float]],
) -> None:
    level, now_s = LoadLevel(), 0.0
    for queue_s, passed_s in steps:
        now_s += passed_s
        before, found = level.level, level.show(queue_s, BOUND_S, MOST, now_s)
        assert 0 <= found <= MOST
        assert found <= before + (queue_s > BOUND_S)


def served(arrivals: Iterator[float], pace: float) -> Iterator[tuple[float, int]]:
    """Simulate a queue whose rows cost less the higher the level; yield its seconds and level."""
    level, queue_s, now_s = LoadLevel(), 0.0, 0.0
    for work_s in arrivals:
        now_s += 0.01
        found = level.show(queue_s, BOUND_S, MOST, now_s)
        queue_s = max(0.0, queue_s + work_s * pace**found - 0.01)
        yield queue_s, found


@pytest.mark.parametrize("load", [1.2, 1.5, 2.0])
def test_a_steady_overload_that_the_rungs_can_take_is_held_near_the_bound(load: float) -> None:
    run = list(served(iter([0.01 * load] * 6000), pace=0.8))
    assert max(queue_s for queue_s, _ in run) < 2 * BOUND_S
    changes = sum(one != other for (_, one), (_, other) in pairwise(run))
    assert changes < 2 * 60 / CALM_S  # in 60 seconds: it does not flutter


def test_after_the_overload_everything_is_as_before() -> None:
    *_, (queue_s, level) = served(iter([0.02] * 300 + [0.005] * 2000), pace=0.8)
    assert (queue_s, level) == (0.0, 0)
