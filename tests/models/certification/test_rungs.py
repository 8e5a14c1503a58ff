from functools import cache

import numpy as np
import pytest

from models.certification.losses import TextLosses, text_losses
from models.certification.path_choice import EPSILONS, Terms, choose_path
from models.certification.paths import Path, candidate_paths
from models.certification.replay import Replay
from models.certification.rungs import Certified, certify, rungs
from models.certification.temperatures import fit_temperatures
from models.quality.recorded import Recorded
from serve.policy.ladder import Loss, Rung
from serve.rules import NeverRule
from tests.support.recordings import said
from tests.support.traits import two_labels

EXITS = tuple(range(1, 7))
NUM_ROWS = 1500


@cache
def rows(
    num_rows: int = NUM_ROWS, seed: int = 0, first_exit_is_wild: bool = False
) -> tuple[Recorded, TextLosses]:
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
    return recorded, text_losses(recorded, None)


def paths() -> list[Path]:
    return candidate_paths(two_labels(EXITS), (1.0,) * 6, 0.0)


def certified(num_rows: int = NUM_ROWS) -> Certified:
    return certify(Replay.of(paths()[0], *rows(num_rows)), Terms(num_rows, 0.05))


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
        fastest = all_ends.replay.path.rules[end - 1]
        # Of rules by which the texts leave at the same exits, one is enough.
        taken = all_ends.replay.exits[[end - 1, all_ends.replay.path.rules.index(within[-1].rule)]]
        assert within[-1].rule == fastest or np.array_equal(*taken)


def test_a_rung_has_one_certificate_per_loss_with_the_smallest_bound() -> None:
    all_ends = certified()
    for rung in rungs(all_ends)[1:]:
        place = all_ends.replay.path.rules.index(rung.rule)
        for loss in all_ends.losses:
            bounds = [e for e in EPSILONS if place < all_ends.ends[loss, e]]
            own = rung.certificate(loss)
            assert (own and own.epsilon) == min(bounds, default=None)
            if own:
                assert (own.n, own.delta) == (NUM_ROWS, 0.05)
                assert own.observed == pytest.approx(all_ends.replay.risks(loss)[place])


def test_with_too_few_texts_nothing_is_certified_and_the_rungs_remain() -> None:
    found = rungs(certified(50))
    assert not any(rung.certificates for rung in found)
    assert len(found) > 10


def test_a_path_that_begins_later_is_chosen_where_the_first_exit_is_sure_and_wrong() -> None:
    terms = Terms(NUM_ROWS, 0.05)
    good = choose_path(paths(), *rows(), terms)
    # With temperatures of 1, confidence orders the texts as entropy does: the simpler one stays.
    assert (good.rules[0].rule, good.rules[0].min_layer) == ("entropy", None)
    wild = choose_path(paths(), *rows(first_exit_is_wild=True), terms)
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
    (tuning, losses), terms = rows(seed=1), Terms(NUM_ROWS, 0.05)
    temperatures = fit_temperatures(tuning)
    assert temperatures == (0.692, 0.637, 0.428, 0.284, 0.151, 1.0)
    every = candidate_paths(tuning.traits, temperatures, 0.0)
    path = choose_path(every, tuning, losses, terms)
    lines = [
        f"{rung.rule.text()} {np.dot(rung.exit_shares, EXITS):.2f} "
        f"{bound(rung, 'disagreement')} {bound(rung, 'metric')}"
        for rung in rungs(certify(Replay.of(path, *rows()), terms))
    ]
    assert lines == LADDER.split("\n")[1:-1]
