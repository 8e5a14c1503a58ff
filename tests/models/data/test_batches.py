"""Length-bucketed batches and their padding."""

from models.data.batches import collate, shuffled_batches
from models.data.encoding import EncodedRow

LENGTHS = [(i * 37) % 23 + 1 for i in range(500)]


def test_every_row_is_in_exactly_one_batch_of_the_epoch() -> None:
    batches = shuffled_batches(LENGTHS, batch_size=8, seed=1, epoch=0)
    assert sorted(row for batch in batches for row in batch) == list(range(500))
    assert max(map(len, batches)) == 8


def test_epochs_differ_and_the_seed_repeats_them() -> None:
    first = shuffled_batches(LENGTHS, 8, seed=1, epoch=0)
    assert first == shuffled_batches(LENGTHS, 8, seed=1, epoch=0)
    assert first != shuffled_batches(LENGTHS, 8, seed=1, epoch=1)
    assert first != shuffled_batches(LENGTHS, 8, seed=2, epoch=0)
    counts = {len(shuffled_batches(LENGTHS, 8, seed=0, epoch=epoch)) for epoch in range(4)}
    assert len(counts) == 1


def test_rows_of_a_batch_have_similar_lengths_and_batches_are_shuffled() -> None:
    batches = shuffled_batches(LENGTHS, batch_size=8, seed=1, epoch=0)
    padded = sum(len(batch) * max(LENGTHS[row] for row in batch) for batch in batches)
    assert padded < 1.1 * sum(LENGTHS)
    longest = [max(LENGTHS[row] for row in batch) for batch in batches]
    assert longest != sorted(longest)


def test_padding_is_masked_and_carries_the_pad_id() -> None:
    batch = collate([EncodedRow([2, 5, 3], [0, 0, 1], 1), EncodedRow([2, 3], [0, 0], 0)], pad_id=9)
    assert batch.input_ids.tolist() == [[2, 5, 3], [2, 3, 9]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.token_type_ids.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert batch.labels.tolist() == [1, 0]
