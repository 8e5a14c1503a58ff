"""Texts to documents, and documents to rows."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from models.data.alignment import IGNORED
from models.data.examples import Example
from models.errors import UnusableData
from models.pretraining.rows import Document, read_documents, split_rows
from tests.support.wordpiece import wordpiece

WORDS = [f"w{i}" for i in range(400)]
Write = Callable[..., Path]


def sentences(count: int, words: int = 3) -> Document:
    """Return sentences of different words in order."""
    return [" ".join(WORDS[i * words : (i + 1) * words]) for i in range(count)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return wordpiece(WORDS)


def split(
    documents: list[Document], tokenizer: Tokenizer, seed: int = 0
) -> tuple[list[Example], list[Example]]:
    return split_rows(documents, tokenizer, max_tokens=15, seed=seed)


def test_blank_lines_make_documents_and_without_them_every_line_is_a_text(
    write_data: Write,
) -> None:
    with_blanks = write_data("a.txt", ["", "one", "two", "", " ", "three", ""])
    without = write_data("b.txt", ["four", "five", ""])
    table = write_data("c.tsv", ["label\ttext_a\ttext_b", "1\tsix\tseven"])
    documents = read_documents([with_blanks, without, table])
    assert documents == [["one", "two"], ["three"], ["four"], ["five"], ["six"], ["seven"]]
    with pytest.raises(UnusableData, match="the file has no texts"):
        read_documents([write_data("d.txt", ["", " "])])


def test_half_of_the_pairs_have_changed_places_and_their_labels_say_which(
    tokenizer: Tokenizer,
) -> None:
    documents = [sentences(40)[i:] for i in range(30)]
    (train, held_out), order = (
        split(documents, tokenizer),
        {text: i for i, text in enumerate(WORDS)},
    )
    labels = Counter()
    for text_a, text_b, label in [*train, *held_out]:
        if text_b is None:
            assert label == IGNORED
            continue
        first, second = (text_b, text_a) if label else (text_a, text_b)
        # The second text begins where the first one ends.
        assert order[second.split()[0]] == order[first.split()[-1]] + 1
        assert len(tokenizer.encode(first, second)) <= 15
        labels[label] += 1
    assert sum(labels.values()) > 150
    assert labels[1] / sum(labels.values()) == pytest.approx(0.5, abs=0.12)


def test_long_texts_give_several_rows_and_lose_nothing(tokenizer: Tokenizer) -> None:
    long, unbroken = " ".join(WORDS[:90]), "x" * 500
    train, held_out = split([[long], ["w1 w2"], [unbroken]], tokenizer)
    texts = [example.text_a for example in [*train, *held_out]]
    assert {example.label for example in train} == {IGNORED}, "no order to tell"
    assert sorted(" ".join(texts).split()) == sorted([*WORDS[:90], "w1", "w2", unbroken])
    assert max(len(tokenizer.encode(text)) for text in texts) <= 15


def test_equal_texts_are_on_one_side_and_every_seed_measures_on_the_same_ones(
    tokenizer: Tokenizer,
) -> None:
    documents = [[text] for text in sentences(40)] * 2
    (train, one), (_, other) = split(documents, tokenizer), split(documents, tokenizer, seed=1)
    assert one == other
    assert len(one) == 2
    assert not {e.text_a for e in one} & {e.text_a for e in train}
    assert len(train) == 76
    with pytest.raises(UnusableData, match=r"1 different row\(s\): expected two at least"):
        split([["w1"], ["w1"]], tokenizer)
