"""Sections that are written from trained runs, one for each seed."""

from dataclasses import replace

import numpy as np
import pytest

from models.elue.score import EluScore
from models.experiments.sections import berxit, diversity, elasticbert, fastbert
from models.quality.costs import MFLOPS, MFLOPS_LINEAR, RowCost
from models.quality.points import STATIC
from models.quality.recorded import Recorded
from models.quality.rule_families import LEARNED, PATIENCE
from models.quality.scores import pearson
from serve.rules import EntropyRule, NeverRule
from serve.rules.traits import Traits
from tests.support.recordings import noisy, said


def _costs(recorded: Recorded) -> dict[str, RowCost]:
    exits, rows = recorded.logits.shape[:2]
    run = np.arange(1, exits + 1)[:, None] * np.linspace(10, 20, rows)
    asked = np.full((exits, rows), 0.5)
    return {MFLOPS: RowCost(2 * run, asked), MFLOPS_LINEAR: RowCost(run, asked)}


def test_speeds_cost_what_texts_run_and_ask() -> None:
    recorded = noisy("single_label")
    costs = _costs(recorded)
    full, *speeds = fastbert.at_speeds(recorded, costs)
    rows = np.arange(recorded.num_rows)
    assert full.linear == pytest.approx((costs[MFLOPS_LINEAR].run[-1] + 0.5).mean())
    p = np.exp(recorded.logits - recorded.logits.max(axis=-1, keepdims=True)).astype(np.float64)
    p /= p.sum(axis=-1, keepdims=True)
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=-1) / np.log(3)
    for speed, found in zip(fastbert.SPEEDS, speeds, strict=True):
        sure = entropy < speed
        sure[-1] = True
        exits = sure.argmax(axis=0)
        linear = costs[MFLOPS_LINEAR].run[exits, rows] + 0.5 * (exits + 1)
        answers = p[exits, rows].argmax(axis=-1)
        assert found.linear == pytest.approx(linear.mean())
        assert found.fewer == pytest.approx(full.linear / linear.mean())
        assert found.accuracy == pytest.approx((answers == recorded.gold).mean())


def test_operating_points_are_mean_operations_and_performance_in_points() -> None:
    recorded = noisy("single_label")
    costs, right = _costs(recorded), recorded.right
    assert right is not None
    ((flops, accuracy),) = elasticbert.places(recorded, costs, [NeverRule()], "accuracy")
    assert flops == pytest.approx((costs[MFLOPS].run[-1] + 0.5).mean())
    assert accuracy == pytest.approx(100 * right[-1].mean())
    ((first, _),) = elasticbert.places(recorded, costs, [EntropyRule(threshold=2)], "accuracy")
    assert first == pytest.approx((costs[MFLOPS].run[0] + 0.5).mean())


@pytest.mark.parametrize(
    ("entropy", "words"),
    [((1.0, 1.1, 0.9), "shows entropy to be better"), ((0.0, 2.0, -2.0), "shows no difference")],
)
def test_rules_are_compared_by_seed(entropy: tuple[float, ...], words: str) -> None:
    scores = {
        "entropy": [EluScore(each, 0) for each in entropy],
        "patience": [EluScore(each, 0) for each in (0.0, 0.1, -0.1)],
    }
    assert words in elasticbert.sentence("sst2", scores)


def _regression() -> Recorded:
    draw = np.random.default_rng(0)
    gold = draw.uniform(0, 5, 80)
    noise = draw.standard_normal((6, 80)) * np.linspace(2, 0.5, 6)[:, None]
    recorded = said(
        (gold + noise)[..., None], Traits(tuple(range(1, 7)), ("x",), "regression"), gold
    )
    traits = replace(recorded.traits, learned=True)
    return replace(recorded, traits=traits, uncertainty=np.abs(np.tanh(noise)).astype(np.float32))


def test_regressions_rules_are_compared_at_equal_depths() -> None:
    recorded = _regression()
    found = berxit.at_depths(recorded)
    assert recorded.gold is not None
    rows = np.arange(recorded.num_rows)
    halves = [
        [pearson(each[rows % 2 == side], recorded.gold[rows % 2 == side]) for side in (0, 1)]
        for each in recorded.logits[2:5, :, 0]
    ]
    assert found[STATIC] == pytest.approx(np.mean(halves, axis=1))
    # Errors that are known exactly are a better signal than any.
    assert (found[LEARNED] > found[STATIC]).all()
    said = berxit.sentence({"joint": [found, found]}, STATIC)
    assert "the higher mean in 3 of 3 cells; it is shown to be better in 3 and worse in 0" in said


def test_tuned_patience_is_at_least_a_fixed_layer_where_the_texts_tune_it() -> None:
    tried = berxit._tried(_regression())
    for layer in (3, 4, 5):
        static = tried.at(STATIC, layer)
        best = max(
            found.value
            for name in tried.points
            if name.startswith(PATIENCE) and (found := tried.at(name, layer)) is not None
        )
        assert static is not None
        assert best >= static.value - 1e-9


def test_diversity_is_compared_by_rule_and_seed() -> None:
    plain = [[0.80, 0.81, 0.82]] * 3
    diverse = [*plain[:2], [0.83, 0.84, 0.85]]
    gaps = diversity.compared(plain, diverse)
    assert [gap.differs for gap in gaps] == [False, False, True]
    assert gaps[-1].value == pytest.approx(0.03)
