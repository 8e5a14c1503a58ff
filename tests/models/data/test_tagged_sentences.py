"""Reading tagged sentences: CoNLL files and JSON lines."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.data.tagged_sentences import TaggedSentence, read_sentences
from models.errors import UnusableData

Write = Callable[..., Path]

CONLL = ["token\ttag", "Rome\tB-location", "sleeps\tO", "", "So\tO", "", ""]


def test_blank_lines_end_sentences(write_data: Write) -> None:
    assert read_sentences(write_data("d.tsv", CONLL)) == [
        TaggedSentence((2, 3), ("Rome", "sleeps"), ("B-location", "O")),
        TaggedSentence((5,), ("So",), ("O",)),
    ]


def test_last_sentence_needs_no_blank_line_and_a_file_no_header(write_data: Write) -> None:
    (sentence,) = read_sentences(write_data("d.conll", ["Rome\tB-location", "sleeps\tO"]))
    assert sentence.words == ("Rome", "sleeps")


def test_conll_2003_has_columns_between_and_marks_documents(write_data: Write) -> None:
    lines = ["-DOCSTART- -X- -X- O", "", "EU NNP B-NP B-ORG", "rejects VBZ B-VP O"]
    (sentence,) = read_sentences(write_data("d.txt", lines))
    assert sentence.words == ("EU", "rejects")
    assert sentence.tags == ("B-ORG", "O")


def test_quotes_and_odd_separators_are_part_of_a_token(write_data: Write) -> None:
    (sentence,) = read_sentences(write_data("d.tsv", ['"\tO', "a\u2028b\tO", "New York\tB-x"]))
    assert sentence.words == ('"', "a\u2028b", "New York")


def test_json_lines_list_tokens_and_tags(write_data: Write) -> None:
    lines = ['{"tokens": ["Rome", "sleeps"], "ner_tags": [7, 0]}']
    assert read_sentences(write_data("d.jsonl", lines)) == [
        TaggedSentence((1, 1), ("Rome", "sleeps"), ("7", "0"))
    ]


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
            r"line 1: expected a list of tags, .*tokens",
        ),
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
