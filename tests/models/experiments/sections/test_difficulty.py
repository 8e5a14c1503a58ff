"""From which layer on a text's answer stays."""

import numpy as np
import pytest

from models.experiments.sections.difficulty import cells, settled, settled_at
from tests.support.recordings import margins


def test_text_is_settled_where_all_later_exits_agree_with_the_last() -> None:
    same = np.random.default_rng(0).random((5, 40)) > 0.5
    same[-1] = True
    expected = [next(i for i in range(5) if same[i:, row].all()) for row in range(40)]
    assert settled_at(same).tolist() == expected


def test_settled_texts_are_counted() -> None:
    recorded = margins([[5, 5, 5], [-5, 5, 5], [5, -5, 5], [5, 5, 5]], [1, 1, 0, 0])
    assert settled(recorded) == (0.5, 0.5)  # at layer 2, and at layers 4 and 6


def test_overthinking_is_that_of_the_report() -> None:
    full, oracle, depth, overthought, rescued, *_ = cells(
        margins([[5, -5], [-5, 5], [5, 5], [-5, -5]], [1, 1, 1, 1])
    )
    assert (full, oracle, overthought, rescued) == ("50.00", "75.00", "25.00", "25.00")
    assert float(depth) == pytest.approx((2 + 4 + 2 + 4) / 4)
