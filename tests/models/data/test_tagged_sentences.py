"""Reading tagged sentences: CoNLL files and JSON lines."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.data.tagged_sentences import TaggedSentence, read_sentences
from models.errors import UnusableData

Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("name", "lines", "sentences"),
    [
        (
            "d.tsv",
            ["token\ttag", "Rome\tB-location", "sleeps\tO", "", "So\tO", "", ""],
            [
                TaggedSentence((2, 3), ("Rome", "sleeps"), ("B-location", "O")),
                TaggedSentence((5,), ("So",), ("O",)),
            ],
        ),
        (  # neither header nor final blank line
            "d.conll",
            ["Rome\tB-location", "sleeps\tO"],
            [TaggedSentence((1, 2), ("Rome", "sleeps"), ("B-location", "O"))],
        ),
        (  # CoNLL-2003
            "d.txt",
            ["-DOCSTART- -X- -X- O", "", "EU NNP B-NP B-ORG", "rejects VBZ B-VP O"],
            [TaggedSentence((3, 4), ("EU", "rejects"), ("B-ORG", "O"))],
        ),
        *(  # headers, document starts and comments are no words, wherever they stand
            (
                name,
                [mark, "EU NNP B-ORG", mark, "acts VBZ O"],
                [
                    TaggedSentence((2,), ("EU",), ("B-ORG",)),
                    TaggedSentence((4,), ("acts",), ("O",)),
                ],
            )
            for name in ("d.conll", "d.txt")
            for mark in (
                "token pos ner",
                "Word Label",
                "-DOCSTART-",
                "-DOCSTART-\tO",
                "# id = 7",
                "# id 7 domain=en",
                "# id 7\tdomain=en",
            )
        ),
        (  # quotes, other line separators and spaces are part of a token
            "d.tsv",
            ['"\tO', "a\u2028b\tO", "New York\tB-x"],
            [TaggedSentence((1, 2, 3), ('"', "a\u2028b", "New York"), ("O", "O", "B-x"))],
        ),
        (
            "d.jsonl",
            ['{"tokens": ["Rome", "sleeps"], "ner_tags": [7, 0]}'],
            [TaggedSentence((1, 1), ("Rome", "sleeps"), ("7", "0"))],
        ),
    ],
)
def test_every_format_is_read(
    write_data: Write, name: str, lines: list[str], sentences: list[TaggedSentence]
) -> None:
    assert read_sentences(write_data(name, lines)) == sentences


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("d.tsv", ["Rome\tO", "sleeps"], r"line 2: expected a token, a tab and its tag, found 's"),
        ("d.tsv", ["Rome\t"], r"line 1: expected a token"),
        ("d.tsv", ["\tO"], r"line 1: expected a token"),
        ("d.tsv", ["token\ttag"], r"d.tsv: the file has no sentences"),
        ("d.tsv", ["label\ttext", "1\tgood"], r"line 1: a table of texts; token classification"),
        (
            "d.jsonl",
            ['{"tokens": ["a"], "tags": []}'],
            r"line 1: tags is an empty list; leave",
        ),
        ("d.jsonl", ['{"tokens": ["a"], "tags": [], "ner_tags": [0, 1]}'], r"1 tokens have 2 tags"),
        ("d.jsonl", ['{"tokens": ["a"], "tags": [0, 1]}'], r"line 1: 1 tokens have 2 tags"),
        ("d.jsonl", ['{"tokens": ["a", " "], "tags": [0, 1]}'], r"line 1: token 1 is empty"),
        ("d.jsonl", ['{"text": "a"}'], r"line 1: expected a list of tokens"),
    ],
)
def test_unusable_sentences_are_told_with_file_and_line(
    write_data: Write, name: str, lines: list[str], message: str
) -> None:
    with pytest.raises(UnusableData, match=message):
        read_sentences(write_data(name, lines))


def test_missing_file_and_foreign_encoding_are_told(tmp_path: Path) -> None:
    with pytest.raises(UnusableData, match="no such file"):
        read_sentences(tmp_path / "none.conll")
    (tmp_path / "d.conll").write_bytes(b"caf\xe9\tO\n")
    with pytest.raises(UnusableData, match="not UTF-8"):
        read_sentences(tmp_path / "d.conll")
