"""ELUE's score against its formula."""

from itertools import pairwise

import numpy as np
import pytest

from models.elue.score import curve, elue_score, rank, size_class

REFERENCE = [(100.0, 80.0), (200.0, 86.0), (400.0, 90.0)]


def by_hand(points: list[tuple[float, float]]) -> float:
    """The formula, with the line between two neighbours written out."""
    total = 0.0
    for flops, performance in points:
        (x0, y0), (x1, y1) = next(pair for pair in pairwise(REFERENCE) if pair[1][0] >= flops)
        total += performance - (y0 + (y1 - y0) * (flops - x0) / (x1 - x0))
    return total / len(points)


def test_the_score_is_the_mean_distance_to_the_line_between_the_references_points() -> None:
    points = [(150.0, 84.5), (390.0, 89.0), (200.0, 86.25), (100.0, 79.0)]
    found = elue_score(points, REFERENCE[::-1])
    assert found.score == pytest.approx(by_hand(points))
    assert found.clamped == 0


def test_the_reference_itself_scores_zero() -> None:
    assert elue_score(REFERENCE, REFERENCE) == (0.0, 0)


def test_outside_the_reference_its_nearest_end_counts_and_that_is_told() -> None:
    found = elue_score([(50.0, 81.0), (800.0, 93.0), (200.0, 86.0)], REFERENCE)
    assert found.score == pytest.approx((1 + 3 + 0) / 3)
    assert found.clamped == 2


def test_seeds_of_a_reference_count_by_their_mean_at_each_depth() -> None:
    rng = np.random.default_rng(0)
    seeds = [[(f * (1 + 1e-9 * s), p + rng.normal()) for f, p in REFERENCE] for s in range(3)]
    found = curve([place for seed in seeds for place in seed])
    means = np.mean(seeds, axis=0)[:, 1]
    assert [p for _, p in found] == pytest.approx(list(means))
    alone = elue_score([(300.0, 90.0)], [place for seed in seeds for place in seed])
    assert alone.score == pytest.approx(90 - (means[1] + means[2]) / 2)


@pytest.mark.parametrize(
    ("parameters", "board"),
    [(None, "-"), (22_000_000, "40 M"), (40_000_000, "40 M"), (40_000_001, "55 M"),
     (109_000_000, "110 M"), (335_000_000, "above 110 M")],
)  # fmt: skip
def test_a_model_stands_on_the_board_of_its_size(parameters: int | None, board: str) -> None:
    assert size_class(parameters) == board


def test_equal_scores_share_a_rank() -> None:
    scores = [1.0, 2.0, 2.0, -1.0]
    assert [rank(score, scores) for score in scores] == ["3 of 4", "1 of 4", "1 of 4", "4 of 4"]


@pytest.mark.parametrize(
    ("points", "reference"), [([], REFERENCE), (REFERENCE, []), ([(1.0, float("nan"))], REFERENCE)]
)
def test_nothing_to_compare_is_no_score(
    points: list[tuple[float, float]], reference: list[tuple[float, float]]
) -> None:
    with pytest.raises(ValueError, match="a score needs"):
        elue_score(points, reference)
