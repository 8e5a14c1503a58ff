import numpy as np
import pytest

from serve.bundle.loader import Bundle
from serve.engine.cost_model import REFIT_EVERY, CostModel, SegmentCost
from serve.engine.warm_up import WarmUp, measure
from serve.runtime.cpu_runner import CpuRunner

TRUE = SegmentCost(fixed_s=2e-4, per_token_s=2e-5, per_token_pair_s=2e-8)
SHAPES = [(1, 8), (1, 128), (4, 16), (8, 64), (16, 32), (32, 8), (2, 300)]


def learned(model: CostModel, cost: SegmentCost, runs: int, noise: float = 0.0) -> CostModel:
    """Return the model after it has seen so many runs of each segment."""
    generator = np.random.default_rng(0)
    for run in range(runs):
        rows, tokens = SHAPES[run % len(SHAPES)]
        for index in range(len(model)):
            seconds = cost.seconds(rows, tokens) * np.exp(noise * generator.normal())
            model.observe(index, rows, tokens, float(seconds))
    return model


def test_nothing_is_known_before_anything_is_measured() -> None:
    model = CostModel(3)
    assert not model.known
    assert model.segment_s(0, 4, 16) == model.remaining_s(0, 4, 16) == 0


def test_times_are_found_again_from_noisy_runs() -> None:
    model = learned(CostModel(2), TRUE, 700, noise=0.1)
    model.refit()
    assert model.known
    for rows, tokens in [(1, 16), (8, 32), (32, 64)]:
        assert model.segment_s(1, rows, tokens) == pytest.approx(
            TRUE.seconds(rows, tokens), rel=0.1
        )


FALLING = [SegmentCost(fixed_s=k * 1e-3, per_token_s=k * 1e-5) for k in (4, 3, 2, 1)]


@pytest.mark.parametrize(
    ("index", "budget_s", "depth"),
    [
        (0, 1, 4),
        (0, 10.5e-3, 4),
        (0, 9.5e-3, 3),
        (0, 8e-3, 2),
        (0, 5e-3, 1),
        (1, 6.5e-3, 4),
        (1, 5.5e-3, 3),
        (2, 2.5e-3, 3),
        (3, 0, 4),
        (0, 0, 1),
        (2, -1, 3),
    ],
)
def test_a_batch_reaches_as_deep_as_the_time_allows_and_one_segment_in_any_case(
    index: int, budget_s: float, depth: int
) -> None:
    assert CostModel.of(FALLING).reach(index, 1, 2, budget_s) == depth


def test_segments_share_a_time_by_what_each_is_known_to_cost() -> None:
    model = CostModel.of(FALLING)
    assert model.shares(0, 4, 3, 70) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert model.shares(1, 3, 1, 1) == pytest.approx([0.6, 0.4])
    assert model.shares(2, 3, 1, 1) == [1]
    assert CostModel(5).shares(1, 5, 1, 1) == [0.25] * 4


def test_no_coefficient_is_negative_whatever_was_seen() -> None:
    model = CostModel(1)
    generator = np.random.default_rng(1)
    for seconds in generator.exponential(1e-3, 400):
        model.observe(0, int(generator.integers(1, 65)), int(generator.integers(1, 200)), seconds)
    model.refit()
    assert min(model.coefficients()[0]) >= 0


def test_a_machine_that_becomes_slower_is_noticed() -> None:
    model = learned(CostModel(1), TRUE, 50)
    model.anchor()
    slower = SegmentCost(*(2 * value for value in TRUE))
    learned(model, slower, 1500)
    assert model.segment_s(0, 8, 64) == pytest.approx(slower.seconds(8, 64), rel=0.1)


def test_traffic_of_one_shape_does_not_forget_the_others() -> None:
    model = learned(CostModel(1), TRUE, 70)
    model.anchor()
    for _ in range(3000):
        model.observe(0, 4, 16, 2 * TRUE.seconds(4, 16))
    assert model.segment_s(0, 4, 16) == pytest.approx(2 * TRUE.seconds(4, 16), rel=0.1)
    assert model.segment_s(0, 32, 64) == pytest.approx(2 * TRUE.seconds(32, 64), rel=0.5)


def test_a_hiccup_hardly_counts() -> None:
    model = learned(CostModel(1), TRUE, 128)
    for _ in range(2):
        model.observe(0, 8, 64, 10.0)
    model.refit()
    assert model.segment_s(0, 8, 64) == pytest.approx(TRUE.seconds(8, 64), rel=0.15)


def test_no_pass_waits_for_more_than_one_segment_to_be_fitted_anew() -> None:
    model = CostModel(4)
    fitted = []
    for _ in range(2 * REFIT_EVERY):
        before = model.coefficients()
        for index in range(len(model)):
            model.observe(index, 1, 16, 1e-3)
        changed = zip(before, model.coefficients(), strict=True)
        fitted.append(sum(old != new for old, new in changed))
    assert max(fitted) == 1
    assert model.known


def test_joining_costs_by_tokens() -> None:
    model = CostModel(1)
    for _ in range(9):
        model.observe_join(4, 16, 64e-6)
    assert model.join_s(2, 100) == pytest.approx(200e-6)


def test_the_warm_up_measures_every_segment_of_a_real_model(bundle: Bundle) -> None:
    chain = CpuRunner(bundle, "fp32", num_threads=1)
    model = measure(chain, bundle.manifest.max_tokens, WarmUp(budget_s=0.2))
    assert model.known
    assert len(model) == len(chain)
    assert model.segment_s(0, 8, 32) > 0
    assert model.join_s(8, 32) > 0
