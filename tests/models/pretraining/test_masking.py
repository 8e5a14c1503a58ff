"""Masked words: which tokens are chosen, and what is shown in their place."""

import pytest
import torch

from models.data.batches import Batch
from models.pretraining.masking import Masking

SPECIAL, MASK, NUM_TOKENS = (0, 2, 3, 4), 4, 1000


@pytest.fixture
def batch() -> Batch:
    """Return 200 rows of 102 tokens, of which the first is [CLS] and the last is padding."""
    ids = torch.randint(5, NUM_TOKENS, (200, 102), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -2], ids[:, -1] = 2, 3, 0
    mask = torch.ones_like(ids)
    mask[:, -1] = 0
    return Batch(ids, mask, torch.zeros_like(ids), torch.zeros(200))


def test_words_are_masked_in_the_shares_of_bert(batch: Batch) -> None:
    torch.manual_seed(1)
    masked = Masking(MASK, SPECIAL, NUM_TOKENS, share=0.15)(batch)
    ids, shown, chosen = batch.input_ids, masked.batch.input_ids, masked.chosen
    words = torch.zeros_like(chosen)
    words[:, 1:-2] = True
    assert not (chosen & ~words).any(), "special tokens and padding are never chosen"
    assert torch.equal(shown[~chosen], ids[~chosen])
    assert masked.targets.tolist() == [
        ids[row, place].item() for row, place in chosen.nonzero().tolist()
    ]
    count = int(chosen.sum())
    # Of 19,800 words; all shares are within four standard deviations.
    assert count / words.sum() == pytest.approx(0.15, abs=0.0102)
    as_mask = (shown == MASK) & chosen
    kept = (shown == ids) & chosen
    assert as_mask.sum() / count == pytest.approx(0.8, abs=0.03)
    # One random token in a thousand is the token itself.
    assert kept.sum() / count == pytest.approx(0.1, abs=0.023)
    others = shown[chosen & ~as_mask & ~kept]
    assert len(others) / count == pytest.approx(0.1, abs=0.023)
    assert others.min() < 100
    assert others.max() > 900


def test_a_generator_hides_the_same_words_again_and_leaves_pytorchs_own_alone(batch: Batch) -> None:
    masking = Masking(MASK, SPECIAL, NUM_TOKENS, share=0.15)
    before = torch.get_rng_state()
    one, other = (masking(batch, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one.batch.input_ids, other.batch.input_ids)
    assert torch.equal(torch.get_rng_state(), before)
