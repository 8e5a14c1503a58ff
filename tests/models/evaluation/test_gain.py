"""Early exit against stopping every text at the same layer."""

import numpy as np
import pytest

from models.evaluation.bootstrap import Resampled, resampled
from models.evaluation.costs import LAYERS
from models.evaluation.gain import gain
from models.evaluation.points import STATIC
from tests.support.recordings import analysed, margins, noisy


def curve(depths: list[float], values: list[float], samples: int = 3) -> Resampled:
    """Return a curve that is the same in every sample."""
    shape = (1 + samples, len(depths))
    return Resampled(np.broadcast_to(depths, shape), np.broadcast_to(values, shape))


STOPPING = curve([2.0, 4.0, 6.0], [0.6, 0.8, 0.9])


def test_the_area_is_that_between_the_lines() -> None:
    # A triangle over the static line from 2 to 6, with 0.1 at layer 4.
    found = gain(curve([2.0, 4.0, 6.0], [0.6, 0.9, 0.9]), STOPPING)
    assert found.area == pytest.approx(0.1 * 4 / 2)
    assert found.mean == pytest.approx(0.05)
    assert found.shown
    assert found.at_depths[50] == pytest.approx(0.1)


def test_points_may_come_in_any_order_and_cover_a_part_of_the_depths() -> None:
    found = gain(curve([6.0, 3.0], [0.9, 0.7]), STOPPING)
    assert (found.depths[0], found.depths[-1]) == (3, 6)
    # On the line from 3 to 4 it loses up to 1/30 at 4, where the static line bends.
    assert found.mean == pytest.approx(-(0.8 - 0.7 - 0.2 / 3) / 2, abs=1e-4)


def test_the_same_curve_gains_nothing_and_is_said_not_to() -> None:
    found = gain(STOPPING, STOPPING)
    assert found.mean == 0
    assert not found.shown


def test_samples_draw_the_same_rows_for_every_point() -> None:
    seen = analysed(noisy("single_label"))
    static = seen.points[STATIC]
    found = resampled(seen.metric, [*static, *static], samples=40)
    assert np.array_equal(found.values[:, :3], found.values[:, 3:])
    assert found.values[0].tolist() == pytest.approx([p.value for p in static] * 2)
    assert found.values[1:].std(axis=0).min() > 0
    # Every text stops at the same layer, whatever is drawn.
    assert np.array_equal(found.depths, np.broadcast_to([1, 2, 4] * 2, (41, 6)))


def test_a_rule_that_lets_easy_texts_leave_is_seen_to_gain() -> None:
    # Half of the texts are right and sure at once; the others become right at the end.
    easy, hard = [[9.0, 9.0, 9.0]] * 200, [[-0.1, -0.1, 9.0]] * 200
    analysis = analysed(margins([*easy, *hard], [1] * 400))
    assert analysis.headline == "entropy"
    found = analysis.gains["entropy"]
    assert found.shown
    # From (2, 0.5) over (4, 1) to (6, 1), against (2, 0.5), (4, 0.5), (6, 1).
    assert found.mean == pytest.approx(0.25, abs=0.01)


def test_the_front_holds_what_no_other_point_beats() -> None:
    seen = analysed(margins([[9.0, 9.0, 9.0], [0.1, -9.0, -9.0]], [1, 0]))
    costs = [(p.costs[LAYERS], p.value) for p in seen.front()]
    # All at the first exit; one at the first and one at the second.
    assert costs == [(2, 0.5), (3, 1)]
