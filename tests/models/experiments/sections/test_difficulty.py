"""From which layer on a text's answer stays."""

import numpy as np
import pytest

from models.experiments.sections.difficulty import overthinking_cells, settled, settled_at
from tests.support.recordings import margins


def test_text_is_settled_where_all_later_exits_agree_with_the_last() -> None:
    same = np.random.default_rng(0).random((5, 40)) > 0.5
    same[-1] = True
    expected = [next(i for i in range(5) if same[i:, row].all()) for row in range(40)]
    assert settled_at(same).tolist() == expected


def test_settled_texts_are_counted_with_their_accuracy() -> None:
    recorded = margins([[5, 5, 5], [-5, 5, 5], [5, -5, 5], [5, 5, 5]], [1, 1, 0, 0])
    first, second, third = settled(recorded)
    assert (first.layer, first.share, first.accuracy) == (2, 0.5, 0.5)
    assert (second.share, second.accuracy) == (0.25, 1)
    assert (third.share, third.accuracy) == (0.25, 0)


def test_layer_at_which_no_text_settles_has_no_accuracy() -> None:
    (_, second) = settled(margins([[5, 5], [4, 5]], [1, 1]))
    assert second.cells == [4, "0.00", None, None]


def test_overthinking_is_that_of_the_report() -> None:
    full, oracle, depth, overthought, rescued, *_ = overthinking_cells(
        margins([[5, -5], [-5, 5], [5, 5], [-5, -5]], [1, 1, 1, 1])
    )
    assert (full, oracle, overthought, rescued) == ("50.00", "75.00", "25.00", "25.00")
    assert float(depth) == pytest.approx((2 + 4 + 2 + 4) / 4)
