"""Verdicts that may be looked at after every answer: how often they are wrong, by simulation."""

from collections.abc import Sequence

import numpy as np
import pytest

from serve.audits.counts import AuditCounts, AuditKey, Tally, Traffic, bucket_of, most_ms
from serve.audits.evidence import ANY, RARE, confidence_sequence
from serve.policy.document import Policy
from serve.policy.rollout import Plan, Rollout
from serve.rollout.judged import judge

NOW = "2026-01-31T08:00:00Z"
EXITS = (1, 2, 4, 6)
DELTA, RUNS, ANSWERS = 0.1, 300, 600


def rollout(**plan: object) -> Rollout:
    made = Plan.model_validate({"bounds": {"layers": 3}, **plan})
    return Rollout.of(made, Policy(), NOW)


def of_layers(found: dict[int, int], **plan: object) -> tuple[float, float]:
    made = rollout(**plan)
    counts = AuditCounts()
    traffic = Traffic(requests=sum(found.values()), exits=found)
    counts.add(AuditKey.of_arm(made.arm("candidate")), Tally(traffic=traffic))
    figure = judge(made, counts, EXITS).arms["candidate"].layers
    return figure.low, figure.high


@pytest.mark.parametrize(
    "shares", [(0.7, 0.1, 0.1, 0.1), (0.0, 0.0, 0.05, 0.95), (0.5, 0, 0, 0.5), (0, 1, 0, 0)]
)
def test_bounds_of_mean_layers_hold_after_every_answer(shares: Sequence[float]) -> None:
    random = np.random.default_rng(7)
    drawn = random.choice(EXITS, (RUNS, ANSWERS), p=np.array(shares))
    mean = float(np.dot(EXITS, shares))
    values = (drawn - EXITS[0]) / (EXITS[-1] - EXITS[0])
    target = (mean - EXITS[0]) / (EXITS[-1] - EXITS[0])
    wrong = 0
    for run in np.cumsum(values, axis=1):
        looks = range(4, ANSWERS, 15)
        bounds = (confidence_sequence(run[n], n + 1, DELTA, ANY) for n in looks)
        wrong += any(not low - 1e-9 <= target <= high + 1e-9 for low, high in bounds)
    assert wrong / RUNS <= DELTA


def test_bounds_of_mean_layers_are_narrow_enough_to_decide() -> None:
    found = {1: 2000, 2: 1000, 4: 1000, 6: 1000}  # 2.8 layers
    low, high = of_layers(found)
    assert 2.5 < low < 2.8 < high < 3.1
    deep_low, deep_high = of_layers({6: 1000})
    assert 5.9 < deep_low < deep_high == pytest.approx(6, abs=1e-6)


@pytest.mark.parametrize("num_layers", [6, 12, 24, 48])
def test_few_answers_near_the_ends_of_a_deep_model_have_bounds(num_layers: int) -> None:
    span = num_layers - 1
    for answers in (1, 2, 3):
        for above in range(answers * span + 1):
            for delta in (0.05, 0.0125, 1e-9):
                low, high = confidence_sequence(above / span, answers, delta, ANY)
                assert 0 <= low <= above / span / answers <= high <= 1


def test_nothing_is_decided_of_no_answers() -> None:
    judged = judge(rollout(bounds={"layers": 3, "disagreement": 0.1}), AuditCounts(), EXITS)
    assert judged.verdict == "inconclusive"
    layers = judged.arms["candidate"].layers
    assert (layers.mean, layers.low, layers.high) == (None, 1, pytest.approx(6))


def test_model_with_one_exit_has_one_depth() -> None:
    judged = judge(rollout(), AuditCounts(), (4,))
    layers = judged.arms["candidate"].layers
    assert (layers.mean, layers.low, layers.high) == (4, 4, 4)


def test_answers_of_a_bundle_with_other_exits_have_bounds() -> None:
    made, counts = rollout(), AuditCounts()
    traffic = Traffic(requests=30, exits={1: 10, 6: 20})
    counts.add(AuditKey.of_arm(made.arm("candidate")), Tally(traffic=traffic))
    for exits in ((2, 4), (4,), (6, 12)):
        layers = judge(made, counts, exits).arms["candidate"].layers
        assert layers.mean is not None
        assert 1 <= layers.low < layers.mean < layers.high <= max(6, *exits)


def test_delta_is_shared_by_the_bounds() -> None:
    both = rollout(bounds={"layers": 3, "errors": 0.1})
    counts = AuditCounts()
    counts.add(
        AuditKey.of_arm(both.arm("candidate")), Tally(traffic=Traffic(requests=50, errors=5))
    )
    found = judge(both, counts, EXITS).arms["candidate"].error_rate
    assert (found.low, found.high) == confidence_sequence(5, 50, 0.025, RARE)


def test_arms_of_an_earlier_rollout_say_nothing_of_this_one() -> None:
    counts = AuditCounts()
    counts.add(
        AuditKey.of_arm(rollout().arm("candidate")), Tally(audited=9, traffic=Traffic(requests=9))
    )
    assert judge(rollout(), counts, EXITS).arms["candidate"].requests == 0


def test_p99_is_told_to_a_tenth() -> None:
    times = {bucket_of(5.0): 985, bucket_of(80.0): 10, bucket_of(900.0): 5}
    made, counts = rollout(), AuditCounts()
    counts.add(
        AuditKey.of_arm(made.arm("live")), Tally(traffic=Traffic(requests=1000, times=times))
    )
    found = judge(made, counts, EXITS).arms["live"].p99_ms
    assert found is not None
    assert 80 <= found <= 88
    assert most_ms(bucket_of(3.0)) >= 3.0
