"""What batches cost: found by the warm-up, kept up with the machine's speed."""

import numpy as np
import pytest

from serve.bundle.loader import Bundle
from serve.engine.cost_model import RUNS, CostModel, CostRecorder, SegmentCost, SegmentRun, fitted
from serve.engine.row import BatchStats
from serve.engine.warm_up import WarmUp, measure
from serve.runtime.cpu_runner import CpuRunner

TRUE = SegmentCost(fixed_s=2e-4, per_token_s=2e-5, per_token_pair_s=2e-8)
SHAPES = [(1, 8), (1, 128), (4, 16), (8, 64), (16, 32), (32, 8), (2, 300)]
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
    assert CostModel(FALLING).reach(index, 1, 2, budget_s) == depth


def test_segments_share_a_time_by_what_each_is_known_to_cost() -> None:
    model = CostModel(FALLING)
    assert model.shares(0, 3, 3, 70) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert model.shares(1, 2, 1, 1) == pytest.approx([0.6, 0.4])
    assert model.shares(2, 2, 1, 1) == [1]


def test_a_cost_is_found_again_from_noisy_runs() -> None:
    generator = np.random.default_rng(0)
    noise = np.exp(0.05 * generator.normal(size=10 * len(SHAPES)))
    runs = [(*shape, TRUE.seconds(*shape)) for shape in 10 * SHAPES]
    found = fitted([(r, t, s * n) for (r, t, s), n in zip(runs, noise.tolist(), strict=True)])
    for shape in [(1, 16), (8, 32), (32, 64)]:
        assert found.seconds(*shape) == pytest.approx(TRUE.seconds(*shape), rel=0.1)


def test_no_coefficient_is_negative_whatever_was_seen() -> None:
    generator = np.random.default_rng(1)
    runs = [
        (int(generator.integers(1, 65)), int(generator.integers(1, 200)), seconds)
        for seconds in generator.exponential(1e-3, 400).tolist()
    ]
    assert min(fitted(runs)) >= 0


def test_the_machine_s_speed_is_followed_for_all_shapes_and_a_hiccup_hardly_counts() -> None:
    model = CostModel([TRUE] * 2)
    for run in range(12 * RUNS):
        hiccup = 10.0 if run % 10 == 0 else 0.0
        model.observe(0, 1, 4, 16, 2 * 2 * TRUE.seconds(4, 16) + hiccup)
    for shape in SHAPES:
        assert model.segment_s(1, *shape) == pytest.approx(2 * TRUE.seconds(*shape), rel=0.01)
        assert model.remaining_s(0, *shape) == pytest.approx(4 * TRUE.seconds(*shape), rel=0.01)


def test_a_run_is_one_of_each_segment_and_judged_once() -> None:
    seen: list[BatchStats] = []
    recorder = CostRecorder(CostModel([TRUE] * 4), seen.append)
    recorder.record(SegmentRun(1, 3, 2, 9, 5, 0.3, 0.01))
    assert not seen
    recorder.flush()
    recorder.flush()
    assert seen == [
        BatchStats(1, 2, 9, 10, pytest.approx(0.1), 0.0),
        BatchStats(2, 2, 9, 10, pytest.approx(0.1), 0.0),
        BatchStats(3, 2, 9, 10, pytest.approx(0.1), 0.01),
    ]


def test_the_warm_up_measures_every_segment_of_a_real_model(bundle: Bundle) -> None:
    chain = CpuRunner(bundle, "fp32", num_threads=1)
    model = measure(chain, bundle.manifest.max_tokens, WarmUp(budget_s=0.2))
    assert len(model) == len(chain)
    assert model.segment_s(0, 8, 32) > 0
    assert model.join_s(8, 32) > 0
