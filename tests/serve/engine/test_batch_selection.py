"""Which rows start together, against every way there is."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.engine.batch_selection import SizeLimits, least_total, select_batch
from serve.engine.cost_model import SegmentCost
from serve.engine.waiting_queue import NEXT_BATCH, STAY, likely_cost

prices = st.builds(
    SegmentCost,
    fixed_s=st.sampled_from([0.0, 0.3, 2.0]),
    per_token_s=st.sampled_from([1e-4, 0.01, 0.1]),
    per_token_pair_s=st.sampled_from([0.0, 1e-3]),
)
sizes = st.builds(SizeLimits, max_rows=st.integers(1, 9), max_tokens=st.integers(1, 200))
texts = st.lists(st.integers(1, 40), min_size=1, max_size=24)


def seconds(cost: SegmentCost, lengths: list[int]) -> float:
    return cost.seconds(len(lengths), lengths[-1])


@given(lengths=texts, cost=prices, limits=sizes)
def test_the_first_row_starts_and_the_batch_keeps_its_limits(
    lengths: list[int], cost: SegmentCost, limits: SizeLimits
) -> None:
    places = select_batch(lengths, cost, limits)
    assert places[0] == 0
    assert places == sorted(set(places))
    assert len(places) <= limits.room(max(lengths[place] for place in places))


@given(lengths=texts.map(sorted), cost=prices, limits=sizes)
def test_windows_of_least_total_cost_cost_as_little_as_any(
    lengths: list[int], cost: SegmentCost, limits: SizeLimits
) -> None:
    @cache
    def least(stop: int) -> float:
        fitting = range(max(0, stop - limits.room(lengths[stop - 1])), stop) if stop else ()
        ways = [least(first) + seconds(cost, lengths[first:stop]) for first in fitting]
        return min(ways, default=0.0)

    stop, total = len(lengths), 0.0
    while stop:
        first, end = least_total(lengths[:stop], stop - 1, cost, limits)
        assert end == stop
        total += seconds(cost, lengths[first:stop])
        stop = first
    assert total == pytest.approx(least(len(lengths)))


def test_unlike_rows_do_not_start_with_the_first_where_padding_costs_more_than_a_launch() -> None:
    cost, cheap, dear = SegmentCost(1.0, 0.1), SizeLimits(64, 2048), SizeLimits(64, 480)
    assert select_batch([5, 20, 15], cost, cheap) == [0]
    assert likely_cost(cost, cheap) == SegmentCost(NEXT_BATCH, 0.1)
    assert likely_cost(cost, dear) == SegmentCost(1.0, STAY * 0.1)


def test_limits_that_launches_have_narrowed_are_not_bound_by_them() -> None:
    for fixed_s in (1e-3, 0.7, 3.3, 0.04):
        cost = SegmentCost(fixed_s, per_token_s=fixed_s / 19)
        assert not SizeLimits(64, 2048).narrowed(cost).launch_bound(cost)
        assert SizeLimits(64, 900).launch_bound(cost)


def test_a_batch_need_not_grow_beyond_what_saves_something() -> None:
    wide = SizeLimits(64, 2048)
    dear_launch = SegmentCost(fixed_s=1e-3, per_token_s=1e-6)
    cheap_launch = SegmentCost(fixed_s=2**-10, per_token_s=2**-15)
    assert wide.narrowed(dear_launch) == wide
    assert wide.narrowed(cheap_launch) == SizeLimits(64, 1600)
    assert wide.narrowed(SegmentCost(per_token_s=1e-3)) == SizeLimits(64, 512)
    assert SizeLimits(64, 100).narrowed(SegmentCost(per_token_s=1e-3)) == SizeLimits(64, 100)
    assert wide.narrowed(SegmentCost()) == wide
