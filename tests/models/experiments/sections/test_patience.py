"""Agreement of exits: at a speed, and the condition of PABEE's theorem."""

import math

import numpy as np
import pytest

from models.experiments.sections.patience import VOTING, AtSpeed, at_speed, sentence
from models.experiments.sections.patience_condition import patiences, right_side
from models.experiments.sections.sampled import Sampled
from models.quality.points import STATIC
from models.quality.rule_families import ENTROPY, PATIENCE
from tests.support.recordings import margins, noisy


def test_all_rules_are_compared_at_the_same_depth_with_full_depth() -> None:
    recorded = noisy("single_label", num_rows=200)
    right = recorded.right
    assert right is not None
    found = at_speed(recorded)
    assert set(found) <= {STATIC, ENTROPY, PATIENCE, VOTING}
    static = found[STATIC]
    share = (4 / 1.5 - 2) / 2  # exits at layers 1, 2 and 4
    expected = (1 - share) * right[1].mean() + share * right[2].mean()
    assert static.score.value == pytest.approx(expected)
    assert static.gained.value == pytest.approx(expected - right[2].mean())


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (0.01, "better than entropy: patience"),
        (-0.01, "worse than entropy: patience"),
        (0, "no rule"),
    ],
)
def test_sentence_names_the_rules_that_are_shown_to_differ(difference: float, words: str) -> None:
    values = 0.9 + 0.02 * np.random.default_rng(0).standard_normal(1001)
    gaps = difference + 0.001 * np.linspace(-1, 1, 1001)
    none = Sampled(np.zeros(1001))
    found = {
        ENTROPY: AtSpeed(Sampled(values), none),
        PATIENCE: AtSpeed(Sampled(values + gaps), none),
    }
    assert words in sentence("m", found)


def test_condition_holds_in_the_papers_example_from_patience_four_on() -> None:
    assert next(t for t in range(1, 12) if 12 - t < right_side(t, q=0.2, p=0.1)) == 4


def test_measured_patience_stands_beside_the_condition() -> None:
    draw = np.random.default_rng(1)
    gold = draw.integers(2, size=80)
    rows = (2 * gold - 1)[:, None] * 2 + 3 * draw.standard_normal((80, 5))
    recorded = margins(rows.tolist(), gold.tolist())
    right = (rows > 0) == gold[:, None]
    found = patiences(recorded)
    assert [each.patience for each in found] == [1, 2, 3]
    wrong = ~right[:, :-1]
    pairs = [(wrong[:, i] & wrong[:, i + 1]).mean() for i in range(3)]
    alone = [wrong[:, i].mean() * wrong[:, i + 1].mean() for i in range(3)]
    assert found[0].wrong == pytest.approx(np.mean(pairs))
    assert found[0].wrong_if_independent == pytest.approx(np.mean(alone))
    q, p = wrong.mean(), 1 - right[:, -1].mean()
    assert [each.promised for each in found] == [5 - t < right_side(t, q, p) for t in (1, 2, 3)]
    answers = rows > 0
    leaves = [next((i for i in range(1, 5) if answer[i] == answer[i - 1]), 4) for answer in answers]
    accuracy = np.mean([right[row, place] for row, place in enumerate(leaves)])
    assert found[0].gained.value == pytest.approx(accuracy - right[:, -1].mean())


def test_exits_that_are_never_wrong_have_no_bound() -> None:
    assert right_side(2, q=0.0, p=0.1) == math.inf
