"""Certificates: p-values, how often promises hold, and the ladder that a path becomes."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from models.quality.certify import Certified, certify, rungs
from models.quality.losses import Losses, losses_of
from models.quality.paths import EPSILONS, RulePath, Tried, candidate_paths, choose_path
from models.quality.recorded import Recorded
from models.quality.risk_control import num_certified, p_values, rows_needed
from models.quality.temperatures import fit_temperatures
from serve.policy.ladder import Loss, Rung
from serve.rules import NeverRule
from tests.support.recordings import said
from tests.support.traits import two_labels


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


Array = NDArray[np.float64]

NUM_CALIBRATIONS, NUM_TEXTS, NUM_RULES = 1000, 500, 60
EPSILON, DELTA = 0.02, 0.05
# Three standard errors of a share of so many calibrations.
MOST_BROKEN = DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / NUM_CALIBRATIONS)

PLACES = np.linspace(0, 1, NUM_RULES)
# The true risks of the rules of a path. The second falls below the bound again after rising above.
CURVES: dict[str, Array] = {
    "smooth": 0.06 * PLACES**2,
    "non-monotone": np.maximum(0, 0.03 * PLACES + 0.01 * np.sin(15 * PLACES)),
}


# A text that one rule loses is lost by all rules of more risk. Then the rules before the first bad
# one seldom stop a test that the bad one would pass.
def binary(risks: Array, draw: np.random.Generator) -> Array:
    """Return the mean losses of one calibration's texts, each 0 or 1."""
    mean: Array = (draw.random((NUM_TEXTS, 1)) < risks).mean(axis=0)
    return mean


def bounded(risks: Array, draw: np.random.Generator) -> Array:
    """Return the mean losses of one calibration's texts, each anywhere from 0 to 1."""
    lost = draw.random((NUM_TEXTS, 1)) < 2 * risks
    mean: Array = (lost * draw.random((NUM_TEXTS, 1))).mean(axis=0)
    return mean


LOSSES: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "binary": binary,
    "bounded": bounded,
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("curve", CURVES)
def test_certified_rules_keep_the_bound_as_often_as_promised(curve: str, loss: str) -> None:
    draw, risks, used = np.random.default_rng(0), CURVES[curve], []
    for _ in range(NUM_CALIBRATIONS):
        observed = LOSSES[loss](risks, draw)
        end = num_certified(observed, NUM_TEXTS, EPSILON, DELTA, loss == "binary")
        # Every rule of a certified path may be used.
        used.append(risks[:end].max(initial=0))
    assert (np.array(used) > EPSILON).mean() <= MOST_BROKEN
    assert np.mean(used) > EPSILON / 4, "a choice that hardly leaves early would prove nothing"


EXITS = tuple(range(1, 7))
NUM_ROWS = 1500


@cache
def rows(
    num_rows: int = NUM_ROWS, seed: int = 0, first_exit_is_wild: bool = False
) -> tuple[Recorded, Losses]:
    """Return rows of two labels whose exits come ever closer to what the last one says."""
    draw = np.random.default_rng(seed)
    last = 3 * draw.standard_normal(num_rows)
    noise = draw.standard_normal((6, num_rows)) * np.linspace(1.2, 0, 6)[:, None]
    margins = last + noise
    if first_exit_is_wild:
        margins[0] = 30 * draw.standard_normal(num_rows)
    logits = np.stack([margins, 0 * margins], axis=-1).astype(np.float32)
    labels = logits[-1].argmax(axis=-1)
    gold = np.where(draw.random(num_rows) < 0.9, labels, 1 - labels)
    recorded = said(logits, two_labels(EXITS), gold)
    return recorded, losses_of(recorded, None)


def paths() -> list[RulePath]:
    return candidate_paths(two_labels(EXITS), (1.0,) * 6, 0.0)


def certified(num_rows: int = NUM_ROWS) -> Certified:
    return certify(Tried.of(paths()[0], *rows(num_rows)), 0.05)


def test_a_ladder_leads_from_never_to_leaving_at_once_in_even_steps() -> None:
    found = rungs(certified())
    layers = [np.dot(rung.exit_shares, EXITS) for rung in found]
    assert found[0].rule == NeverRule()
    assert (layers[0], layers[-1]) == (6, 1)
    assert layers == sorted(set(layers), reverse=True)
    assert np.diff(layers).min() > -0.5
    assert 15 < len(found) < 27


def test_the_fastest_certified_rule_of_every_bound_is_a_rung() -> None:
    all_ends, found = certified(), rungs(certified())
    for (loss, epsilon), end in all_ends.ends.items():
        assert end
        within = [
            rung for rung in found[1:] if (own := rung.certificate(loss)) and own.epsilon <= epsilon
        ]
        fastest = all_ends.tried.path.rules[end - 1]
        # Of rules by which the texts leave at the same exits, one is enough.
        taken = all_ends.tried.exits[[end - 1, all_ends.tried.path.rules.index(within[-1].rule)]]
        assert within[-1].rule == fastest or np.array_equal(*taken)


def test_a_rung_has_one_certificate_per_loss_with_the_smallest_bound() -> None:
    all_ends = certified()
    for rung in rungs(all_ends)[1:]:
        place = all_ends.tried.path.rules.index(rung.rule)
        for loss in all_ends.losses:
            bounds = [e for e in EPSILONS if place < all_ends.ends[loss, e]]
            own = rung.certificate(loss)
            assert (own and own.epsilon) == min(bounds, default=None)
            if own:
                assert (own.n, own.delta) == (NUM_ROWS, 0.05)
                assert own.observed == pytest.approx(all_ends.tried.risks(loss)[place])


def test_with_too_few_texts_nothing_is_certified_and_the_rungs_remain() -> None:
    found = rungs(certified(50))
    assert not any(rung.certificates for rung in found)
    assert len(found) > 10


def test_a_path_that_begins_later_is_chosen_where_the_first_exit_is_sure_and_wrong() -> None:
    good = choose_path(paths(), *rows(), NUM_ROWS, 0.05)
    # With temperatures of 1, confidence orders the texts as entropy does: the simpler one stays.
    assert (good.rules[0].rule, good.rules[0].min_layer) == ("entropy", None)
    wild = choose_path(paths(), *rows(first_exit_is_wild=True), NUM_ROWS, 0.05)
    assert wild.rules[0].min_layer == 2


# Rule, mean layers, and the bounds of disagreement and of the metric.
LADDER = """
never 6.00 - -
confidence >= 0.999999 5.25 0.005 0.005
confidence >= 0.99999277 5.06 0.005 0.005
confidence >= 0.9999363 4.74 0.005 0.005
confidence >= 0.999728 4.43 0.005 0.005
confidence >= 0.999166 4.10 0.005 0.005
confidence >= 0.99803 3.80 0.005 0.005
confidence >= 0.99537 3.49 0.005 0.005
confidence >= 0.99043 3.17 0.005 0.005
confidence >= 0.9838 2.90 0.005 0.005
confidence >= 0.9827 2.87 0.01 0.005
confidence >= 0.9775 2.72 0.01 0.005
confidence >= 0.9743 2.64 0.01 0.01
confidence >= 0.9707 2.54 0.02 0.01
confidence >= 0.9618 2.37 0.02 0.01
confidence >= 0.9503 2.23 0.02 0.02
confidence >= 0.9433 2.13 0.02 0.02
confidence >= 0.9261 1.96 0.03 0.02
confidence >= 0.9211 1.92 0.03 0.03
confidence >= 0.91 1.83 0.03 0.03
confidence >= 0.897 1.76 0.05 0.03
confidence >= 0.866 1.62 0.05 0.05
confidence >= 0.857 1.58 0.05 0.05
confidence >= 0.837 1.51 - 0.05
confidence >= 0.758 1.28 - -
confidence >= 0.499 1.00 - -
"""


def bound(rung: Rung, loss: Loss) -> str:
    found = rung.certificate(loss)
    return f"{found.epsilon:g}" if found else "-"


def test_the_ladder_of_known_logits_does_not_change() -> None:
    tuning, losses = rows(seed=1)
    temperatures = fit_temperatures(tuning)
    assert temperatures == (0.692, 0.637, 0.428, 0.284, 0.151, 1.0)
    every = candidate_paths(tuning.traits, temperatures, 0.0)
    path = choose_path(every, tuning, losses, NUM_ROWS, 0.05)
    lines = [
        f"{rung.rule.text()} {np.dot(rung.exit_shares, EXITS):.2f} "
        f"{bound(rung, 'disagreement')} {bound(rung, 'metric')}"
        for rung in rungs(certify(Tried.of(path, *rows()), 0.05))
    ]
    assert lines == LADDER.split("\n")[1:-1]
