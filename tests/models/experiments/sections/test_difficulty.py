"""From which layer on a text's answer stays."""

import numpy as np
import pytest

from models.experiments.sections.difficulty import by_chance, figures, settled, settled_at
from tests.support.recordings import margins


def test_text_is_settled_where_all_later_exits_agree_with_the_last() -> None:
    same = np.random.default_rng(0).random((5, 40)) > 0.5
    same[-1] = True
    expected = [next(i for i in range(5) if same[i:, row].all()) for row in range(40)]
    assert settled_at(same).tolist() == expected


def test_settled_texts_are_counted() -> None:
    recorded = margins([[5, 5, 5], [-5, 5, 5], [5, -5, 5], [5, 5, 5]], [1, 1, 0, 0])
    assert settled(recorded) == (0.5, 0.5)  # at layer 2, and at layers 4 and 6


def test_overthinking_has_a_baseline_of_chance() -> None:
    found = figures(margins([[5, -5], [-5, 5], [5, 5], [-5, -5]], [1, 1, 1, 1]))
    names = ("full depth", "best exit", "oracle", "overthought", "rescued")
    assert [found[name] for name in names] == [0.5, 0.5, 0.75, 0.25, 0.25]
    assert found["oracle's layers"] == pytest.approx((2 + 4 + 2 + 4) / 4)
    assert found["by chance"] == pytest.approx(0.5 * 0.5)  # wrong at the last, right at the first


def test_exits_that_err_independently_overthink_as_by_chance() -> None:
    right = np.random.default_rng(0).random((4, 200_000)) < np.array([0.6, 0.7, 0.65, 0.8])[:, None]
    seen = (right[:-1].any(axis=0) & ~right[-1]).mean()
    assert by_chance(right) == pytest.approx(seen, abs=0.003)
