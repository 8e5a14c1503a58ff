import numpy as np
import pytest
from scipy.stats import binom

from models.certification.risk_control import num_certified, p_values, rows_needed


@pytest.mark.parametrize("n", [49, 100, 299, 777, 1600])
def test_p_values_of_binary_losses_are_exact_binomial_tails(n: int) -> None:
    """Also where n * (count / n) is a little more than the count."""
    counts = np.arange(n // 50 + 1)
    found = p_values(counts / n, n, 0.02, binary=True)
    assert found == pytest.approx(binom.cdf(counts, n, 0.02))


def test_p_values_of_bounded_losses_are_larger_than_those_of_binary_ones() -> None:
    risks = np.arange(11) / 500
    bounded, binary = (p_values(risks, 500, 0.02, kind) for kind in (False, True))
    assert (bounded >= binary).all()


def test_299_texts_without_a_loss_certify_one_percent_and_298_do_not() -> None:
    lossless = np.zeros(3)
    assert num_certified(lossless, 299, 0.01, 0.05, binary=True) == 3
    assert num_certified(lossless, 298, 0.01, 0.05, binary=True) == 0
    assert num_certified(lossless, 299, 0.01, 0.05, binary=False) == 3


def test_rules_after_the_first_that_fails_are_not_certified() -> None:
    risks = np.array([0, 0.001, 0.5, 0, 0])
    assert num_certified(risks, 1000, 0.01, 0.05, binary=True) == 2
    assert num_certified(risks[:0], 1000, 0.01, 0.05, binary=True) == 0


@pytest.mark.parametrize(
    ("epsilon", "delta", "needed"), [(0.01, 0.05, 299), (0.005, 0.05, 598), (0.01, 0.1, 230)]
)
def test_texts_needed_without_a_loss_are_those_of_the_closed_form(
    epsilon: float, delta: float, needed: int
) -> None:
    assert rows_needed(0, epsilon, delta) == rows_needed(0, epsilon, delta, binary=False) == needed


def test_more_texts_are_needed_the_closer_the_risk_is_to_the_bound() -> None:
    needed = [rows_needed(risk, 0.01, 0.05) for risk in (0, 0.004, 0.008)]
    assert needed == sorted(set(needed))
    assert rows_needed(0.01, 0.01, 0.05) is None
