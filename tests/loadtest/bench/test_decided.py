import numpy as np
import pytest

from loadtest.bench.decided import Measured, rows_of_table
from models.certification.decisions import FlaggedTexts
from models.recorded import Recorded
from serve.rules.traits import Traits

NUM_TEXTS, NUM_BOUNDS = 3000, 40


@pytest.fixture
def measured() -> Measured:
    """Return texts of two exits: of either side the more are lost the looser the bound is."""
    draw = np.random.default_rng(0)
    full = draw.random(NUM_TEXTS) < 0.4
    # The first exit has a tenth of them wrong, and looser bounds let more of these leave.
    wrong = draw.random(NUM_TEXTS) < 0.1
    looseness = draw.random(NUM_TEXTS)
    leaves = looseness < np.linspace(0, 1, NUM_BOUNDS)[:, None]
    traits = Traits((1, 2), ("no", "yes"))
    logits = np.zeros((2, NUM_TEXTS, 2), np.float32)
    lengths = np.ones(NUM_TEXTS, np.intp)
    recorded = Recorded(traits, (1.0, 1.0), logits, num_tokens=lengths)
    texts = FlaggedTexts(recorded, {"yes": 0.5}, np.stack([full ^ wrong, full]))
    by_side = [np.where(leaves & (full ^ wrong == up), 0, 1) for up in (False, True)]
    return Measured(texts, by_side, np.array([1.0, 2.0]))


def test_certified_decisions_hold_and_the_natural_choice_breaks_many(measured: Measured) -> None:
    rows = list(rows_of_table(measured, count=60))
    broken: dict[str, list[float]] = {"certified": [], "natural": []}
    for _, _, choice, layers, *_, missed, alarms in rows:
        assert 1 <= float(layers) < 2
        broken[choice] += [float(missed), float(alarms)]
    assert max(broken["certified"]) <= 5 + 3 * 2.9
    assert np.mean(broken["natural"]) > 25
