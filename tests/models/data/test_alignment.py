"""Alignment of word tags with tokens: the first token of each word carries its tag."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from models.data.alignment import IGNORED, tag_tokens
from models.data.batches import collate
from models.data.encoding import encode
from models.data.examples import Example, Word
from tests.models.conftest import WORDS
from tests.support.wordpiece import wordpiece


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A tokenizer that knows `film` and `##s`."""
    wordpiece([*WORDS, "##s"]).save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def words_of(text: str, *tags: int) -> tuple[str, list[Word]]:
    words, start = [], 0
    for word, tag in zip(text.split(" "), tags, strict=True):
        words.append(Word(start, start + len(word), tag))
        start += len(word) + 1
    return text, words


@pytest.mark.parametrize(
    ("text", "tags", "max_tokens", "expected"),
    [
        # [CLS] the film ##s good [SEP]
        ("the films good", (0, 1, 2), 16, [IGNORED, 0, 1, IGNORED, 2, IGNORED]),
        # [CLS] film ' s good [SEP]
        ("film's good", (1, 2), 16, [IGNORED, 1, IGNORED, IGNORED, 2, IGNORED]),
        ("good bad fine", (0, 1, 2), 4, [IGNORED, 0, 1, IGNORED]),
        # A BERT tokenizer drops control characters.
        ("good \u0007 bad", (0, 1, 2), 16, [IGNORED, 0, 2, IGNORED]),
    ],
    ids=["suffix", "several parts", "cut", "dropped word"],
)
def test_the_first_token_of_every_word_has_its_tag(
    tokenizer: Path, text: str, tags: tuple[int, ...], max_tokens: int, expected: list[int]
) -> None:
    (found,) = tag_tokens(tokenizer, [words_of(text, *tags)], max_tokens=max_tokens)
    assert found == expected


def test_token_may_begin_with_the_space_before_its_word(tmp_path: Path) -> None:
    words = {"Rome": 0, "\u0120sleeps": 1, "\u0120now": 2}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="Rome"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = words_of("Rome sleeps now", 3, 4, 5)
    (found,) = tag_tokens(tmp_path / "tokenizer.json", [text], max_tokens=16)
    assert found == [3, 4, 5]


def test_encoded_row_has_a_tag_for_each_token_and_padding_has_none(
    make_encoder: Callable[[], Path],
) -> None:
    texts = [words_of("the film is bad", 0, 1, 0, 1), words_of("good", 1)]
    rows = encode(make_encoder(), [Example(t, None, words) for t, words in texts], max_tokens=16)
    assert rows[0].label == [IGNORED, 0, 1, 0, 1, IGNORED]
    assert [len(row.ids) for row in rows] == [len(row.label) for row in rows] == [6, 3]
    assert collate(rows, pad_id=0).labels.tolist() == [
        [IGNORED, 0, 1, 0, 1, IGNORED],
        [IGNORED, 1, *[IGNORED] * 4],
    ]
