from functools import cache

import numpy as np
import pytest

from models.certification.losses import TextLosses
from models.certification.observed import Observed, Replay
from models.certification.path_choice import EPSILONS, Terms, choose_path
from models.certification.paths import Path, candidate_paths
from models.certification.rungs import Certified, certify, rungs
from models.evaluation.bundle_recording import BundleRecording
from serve.policy.ladder import Loss
from serve.rules import NeverRule
from tests.support.traits import two_labels

EXITS = tuple(range(1, 7))
NUM_ROWS = 1500


@cache
def observed(num_rows: int = NUM_ROWS, seed: int = 0, first_exit_is_wild: bool = False) -> Observed:
    """Return rows of two labels whose exits come ever closer to what the last one says."""
    draw = np.random.default_rng(seed)
    last = 3 * draw.standard_normal(num_rows)
    noise = draw.standard_normal((6, num_rows)) * np.linspace(1.2, 0, 6)[:, None]
    margins = last + noise
    if first_exit_is_wild:
        margins[0] = 30 * draw.standard_normal(num_rows)
    logits = np.stack([margins, 0 * margins], axis=-1).astype(np.float32)
    labels = logits.argmax(axis=-1)
    disagreement = (labels != labels[-1]).astype(np.float64)
    right = draw.random(num_rows) < 0.9
    by_loss: dict[Loss, np.ndarray] = {"disagreement": disagreement, "metric": disagreement * right}
    losses = TextLosses(by_loss, frozenset(by_loss))
    lengths = np.full(num_rows, 5)
    return Observed(BundleRecording(logits, lengths), losses, two_labels(EXITS))


def paths() -> list[Path]:
    return candidate_paths(two_labels(EXITS), (1.0,) * 6, 0.0)


def certified(num_rows: int = NUM_ROWS) -> Certified:
    return certify(Replay.of(paths()[0], observed(num_rows)), Terms(num_rows, 0.05))


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
    good = choose_path(paths(), observed(), terms)
    # With temperatures of 1, confidence orders the texts as entropy does: the simpler one stays.
    assert (good.rules[0].rule, good.rules[0].min_layer) == ("entropy", None)
    wild = choose_path(paths(), observed(first_exit_is_wild=True), terms)
    assert wild.rules[0].min_layer == 2
