import re
from collections.abc import Callable
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import betabinom, binom

from serve.audits.evidence import confidence_sequence, log10_evidence, log10_restarted
from tests.serve.support.alarms import audits_until

EPSILON, DELTA = 0.01, 0.05
DAYS, AUDITS, REPLICAS = 400, 4_000, 3
# What a test of level delta may show in so many days.
MOST_ALARMS = DELTA + 3 * sqrt(DELTA * (1 - DELTA) / DAYS)

counts = st.integers(1, 3_000).flatmap(lambda n: st.tuples(st.integers(0, min(n, 40)), st.just(n)))


@given(counts=counts, epsilon=st.sampled_from([0.005, 0.01, 0.02, 0.05]))
def test_evidence_is_the_mean_of_binomial_ratios(counts: tuple[int, int], epsilon: float) -> None:
    differences, audits = counts
    rates = epsilon + (1 - epsilon) * np.geomspace(0.002, 0.5, 24)
    ratios = binom.logpmf(differences, audits, rates) - binom.logpmf(differences, audits, epsilon)
    expected = np.logaddexp.reduce(ratios) - np.log(24)
    assert log10_evidence(differences, audits, epsilon) == pytest.approx(expected / np.log(10))


@given(counts=counts, delta=st.sampled_from([0.01, 0.05]))
def test_interval_ends_where_its_mixture_refutes(counts: tuple[int, int], delta: float) -> None:
    differences, audits = counts
    low, high = confidence_sequence(differences, audits, delta)
    assert low <= differences / audits <= high
    mixture = betabinom.logpmf(differences, audits, 0.5, 10)
    for bound in (low, high):
        if 0 < bound < 1:
            evidence = mixture - binom.logpmf(differences, audits, bound)
            # What a bound close to 1 may be off by its rounding.
            rounding = 2 * audits * np.spacing(1.0) / (1 - bound)
            assert evidence == pytest.approx(-np.log(delta), rel=1e-4, abs=rounding)


def test_no_audits_say_nothing() -> None:
    assert log10_evidence(0, 0, EPSILON) == pytest.approx(0)
    assert confidence_sequence(0, 0, DELTA) == (0, 1)


def day_of_one_server(generator: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Return the counts after every audit of a day at exactly epsilon."""
    return np.cumsum(generator.random(AUDITS) < EPSILON), np.arange(1, AUDITS + 1)


def day_of_replicas(generator: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Return the sums of what replicas have stored so far; each stores at its own times."""
    replica = generator.integers(REPLICAS, size=AUDITS)
    differs, stores = generator.random(AUDITS) < EPSILON, generator.random(AUDITS) < 0.2
    summed = np.zeros((2, AUDITS), np.int64)
    for own in (replica == each for each in range(REPLICAS)):
        last = np.maximum.accumulate(np.where(own & stores, np.arange(1, AUDITS + 1), 0))
        for place, counted in enumerate((differs & own, own)):
            summed[place] += np.r_[0, np.cumsum(counted)][last]
    return summed[0], summed[1]


def evidence_crosses(differences: NDArray, audits: NDArray) -> NDArray[np.bool_]:
    return log10_evidence(differences, audits, EPSILON) >= -np.log10(DELTA)


def alarmed_days(day: Callable[..., tuple[NDArray, NDArray]]) -> float:
    """Return the share of quiet days with an alarm, looked for after every audit."""
    generator = np.random.default_rng(44)
    return float(np.mean([evidence_crosses(*day(generator)).any() for _ in range(DAYS)]))


@pytest.mark.parametrize("day", [day_of_one_server, day_of_replicas])
def test_quiet_days_are_quiet_however_often_one_looks(day: Callable[..., tuple]) -> None:
    assert alarmed_days(day) <= MOST_ALARMS


def test_evidence_sees_what_is_broken() -> None:
    generator = np.random.default_rng(44)
    differences = np.cumsum(generator.random((DAYS, 3_455)) < 2 * EPSILON, axis=1)
    evidence = log10_evidence(differences[:, -1], np.full(DAYS, 3_455), EPSILON)
    assert float(np.mean(evidence >= 2)) > 0.5


def test_long_good_time_does_not_hide_that_a_promise_breaks() -> None:
    good, days = 1_000, 90  # audits of each day
    whole = (days * good // 250, days * good)
    alarmed_after = [
        audits
        for audits in range(10, 5_000, 10)
        if log10_restarted(
            (whole[0] + audits // 10, whole[1] + audits),
            [(days, (audits // 10, audits)), (days - 1, (audits // 10 + 4, audits + good))],
            EPSILON,
        )
        >= 2
    ]
    alone = log10_evidence(whole[0] + 499, whole[1] + 4_990, EPSILON)
    assert alarmed_after[0] <= 150
    assert alone < 0, "all audits together still look good"


def test_restarts_raise_no_more_false_alarms() -> None:
    generator, per_day, days = np.random.default_rng(44), 100, 9
    alarmed = 0
    for _ in range(200):
        differs = np.cumsum(generator.random(per_day * days) < 0.05)
        looks = range(per_day - 1, per_day * days, 7)
        alarmed += any(_restarted(differs, look, per_day) >= -np.log10(DELTA) for look in looks)
    assert alarmed / 200 <= DELTA + 3 * sqrt(DELTA * (1 - DELTA) / 200)


def _restarted(differs: NDArray[np.int64], look: int, per_day: int) -> float:
    begins = [(day, day * per_day) for day in range(1, look // per_day + 1)]
    recent = [
        (day, (int(differs[look] - differs[begin - 1]), look + 1 - begin)) for day, begin in begins
    ]
    return log10_restarted((int(differs[look]), look + 1), recent, 0.05)


def test_the_page_says_how_many_audits_an_alarm_takes() -> None:
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text("utf-8")
    lines = re.findall(r"^\| ([\d.]+) % \| ([\d.]+) % \| ([\d,]+) \| ([\d,]+) \|$", page, re.M)
    assert len(lines) == 12
    for epsilon, rate, *audits in lines:
        found = audits_until(float(epsilon) / 100, 0.01, float(rate) / 100)
        assert [f"{number:,}" for number in found] == audits
