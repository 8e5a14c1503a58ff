"""Reading tagged sentences: CoNLL files and JSON lines."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.data.tagged_sentences import TaggedSentence, read_sentences

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
