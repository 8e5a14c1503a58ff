"""Tables that learn what a model answers."""

import numpy as np
import pytest

from models.quality.recorded import Recorded
from models.table.learn import HELD_OUT, drawn, learn, num_buckets
from serve.rules.signals import decisions
from serve.rules.table import NgramTable
from serve.rules.traits import Task, Traits
from serve.tokenization.tokenizer import Tokens

VOCABULARY, NUM_TEXTS = 60, 800
# A text's answer hangs on two of its words, whichever comes first.
SIGNS = (5, 6)


def texts(seed: int) -> list[Tokens]:
    draw = np.random.default_rng(seed)
    ids = [
        np.concatenate(
            [[2], draw.permutation([draw.choice(SIGNS), *draw.integers(10, 60, 5)]), [3]]
        )
        for _ in range(NUM_TEXTS)
    ]
    return [Tokens(each, np.zeros(len(each), np.int64)) for each in ids]


def said_of(tokens: list[Tokens], task: Task) -> np.ndarray:
    """Return a teacher's logits: the first label with the one sign, the second with the other."""
    ones = np.array([[(each.input_ids == sign).any() for sign in SIGNS] for each in tokens])
    logits = 8 * ones - 4.0
    if task == "multi_label":  # and a third that all texts have
        logits = np.column_stack([logits, np.full(len(tokens), 4.0)])
    return logits.astype(np.float32)


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_a_table_answers_new_texts_as_its_teacher_and_knows_how_sure_it_may_be(task: Task) -> None:
    labels = ("a", "b") if task == "single_label" else ("a", "b", "c")
    traits, tokens, fresh = Traits((1, 2), labels, task), texts(0), texts(1)
    learned = learn(tokens, said_of(tokens, task), traits, VOCABULARY)
    table = NgramTable(learned.rows, learned.buckets, learned.bias)
    found = table.of_texts([each.input_ids for each in fresh])
    same = decisions(task, found) == decisions(task, said_of(fresh, task))
    assert same.reshape(len(fresh), -1).all(axis=1).mean() > 0.97
    assert learned.agreement > 0.9
    assert 0.1 <= learned.temperature <= 10


def test_equal_seeds_give_equal_tables() -> None:
    traits, tokens = Traits((1, 2), ("a", "b")), texts(0)
    one, again, other = (
        learn(tokens, said_of(tokens, "single_label"), traits, VOCABULARY, seed)
        for seed in (1, 1, 2)
    )
    assert one.rows.tobytes() == again.rows.tobytes() != other.rows.tobytes()
    assert one[1:] == again[1:]


@pytest.mark.parametrize(
    ("vocabulary", "labels", "buckets"),
    [(30_522, 2, 1 << 18), (30_522, 4, 1 << 18), (30_522, 28, 1 << 15), (250_002, 28, 1 << 12)],
)
def test_more_labels_have_fewer_buckets(vocabulary: int, labels: int, buckets: int) -> None:
    assert num_buckets(vocabulary, labels) == buckets


def test_texts_of_which_no_table_is_asked_do_not_teach_one() -> None:
    long = Tokens(np.full(600, 7), np.zeros(600, np.int64))
    tokens = [*texts(0)[: 2 * HELD_OUT], long]
    assert sorted(drawn(tokens, 3)) == list(range(2 * HELD_OUT))
    assert drawn(tokens, 3) != drawn(tokens, 4)


def test_a_recording_is_of_the_exits_alone_without_its_table() -> None:
    traits = Traits(
        (1, 2), ("a", "b"), score_temperatures=((3.0,), (2.0,), (1.0,)), table_temperature=1.5
    )
    logits = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    found = Recorded(traits, (0.5, 1.0), logits, num_tokens=np.array([4, 5])).of_exits
    assert found.traits == Traits((1, 2), ("a", "b"), score_temperatures=((2.0,), (1.0,)))
    np.testing.assert_array_equal(found.logits, logits[1:])
