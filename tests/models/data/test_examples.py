"""Reading labelled texts: formats, columns, labels, and the message for each mistake."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.data.datasets import read_dataset
from models.data.examples import Example, read_rows
from models.data.labels import label_names
from models.errors import UnusableData

Write = Callable[..., Path]


def read(path: Path) -> list[Example]:
    return read_dataset(path, "single_label").examples


@pytest.mark.parametrize(
    ("name", "lines", "examples"),
    [
        (  # quotes in tab-separated files are text
            "d.tsv",
            ["label\ttext_a\ttext_b", '1\t"so , good\t', "0\tbad\tor not"],
            [Example('"so , good', None, 1), Example("bad", "or not", 0)],
        ),
        (  # csv quoting
            "d.csv",
            ["sentence,label", '"so, ""good""",pos', "bad,neg"],
            [Example('so, "good"', None, 1), Example("bad", None, 0)],
        ),
        (  # labels as numbers or text
            "d.jsonl",
            ['{"text": "good", "label": 1}', "", '{"text": "bad", "label": "0"}'],
            [Example("good", None, 1), Example("bad", None, 0)],
        ),
        (  # a label that is a name and an id counts as the name
            "d.tsv",
            ["label\ttext", "1\ta", "2\tb"],
            [Example("a", None, 0), Example("b", None, 1)],
        ),
        (  # a byte order mark is not part of the first column
            "d.csv",
            ["\ufefflabel,text", "0,a", "1,b"],
            [Example("a", None, 0), Example("b", None, 1)],
        ),
        (  # a separator at the end of a line is no field
            "d.csv",
            ["label,text", "1,good,", "0,bad,"],
            [Example("good", None, 1), Example("bad", None, 0)],
        ),
    ],
)
def test_every_format_is_read(
    write_data: Write, name: str, lines: list[str], examples: list[Example]
) -> None:
    assert read(write_data(name, lines)) == examples


@pytest.mark.parametrize("column", ["text_a", "text", "sentence", "sentence1"])
def test_common_names_of_the_text_column_are_understood(write_data: Write, column: str) -> None:
    path = write_data("train.tsv", [f"{column}\tsentence2\tlabel", "a\tb\t0", "c\td\t1"])
    assert read(path)[0] == Example("a", "b", 0)


def test_labels_file_beside_the_data_fixes_order_and_allows_names(write_data: Write) -> None:
    lines = ["label\ttext", "yes\ta", "0\tb", "no\tc"]
    assert [e.label for e in read(write_data("d.tsv", lines, labels=["yes", "no"]))] == [0, 0, 1]


def test_without_a_labels_file_numbers_sort_as_numbers(write_data: Write) -> None:
    path = write_data("d.tsv", ["label\ttext", "10\ta", "9\tb", "2\tc"])
    assert label_names(path, read_rows(path)) == ["2", "9", "10"]


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("d.tsv", ["label\tbody", "1\tgood"], r"d.tsv line 2: no column text_a or text .*body"),
        ("d.tsv", ["text", "good"], r"d.tsv line 2: no column label; found text"),
        ("d.tsv", ["label\ttext", "1\tgood", "0"], r"d.tsv line 3: no column text_a"),
        ("d.tsv", ["label\ttext", "1\tgood", "0\t "], r"d.tsv line 3: the text is empty"),
        ("d.tsv", ["label\ttext", "1\tgood\tfilm"], r"d.tsv line 2: 'film' is beyond the header"),
        ("d.csv", ["label,text", "1,good,film"], r"d.csv line 2: 'film' is beyond the header"),
        ("d.csv", ["label,text", ",good"], r"d.csv line 2: the label is empty"),
        ("d.tsv", ["label\ttext"], r"d.tsv: the file has no rows"),
        ("d.tsv", [], r"d.tsv: the file has no rows"),
        ("d.csv", [], r"d.csv: the file has no rows"),
        ("d.jsonl", ['{"label": 1', "{}"], r"d.jsonl line 1: not JSON"),
        ("d.jsonl", ["[1]"], r"d.jsonl line 1: expected a JSON object"),
        ("d.txt", ["label"], r"d.txt: the name must end in .tsv, .csv, .jsonl"),
        ("d.tsv", ["label\ttext", "1\ta"], "at least two labels are needed, found 1"),
    ],
)
def test_unusable_data_is_reported_with_file_and_line(
    write_data: Write, name: str, lines: list[str], message: str
) -> None:
    with pytest.raises(UnusableData, match=message):
        read(write_data(name, lines))


def test_unknown_label_is_reported_with_the_known_ones(write_data: Write) -> None:
    path = write_data("d.tsv", ["label\ttext", "0\ta", "perhaps\tb"], labels=["no", "yes"])
    with pytest.raises(UnusableData, match=r"line 3: unknown label 'perhaps'.* no, yes, or 0 to 1"):
        read(path)


def test_unreadable_files_are_reported(write_data: Write) -> None:
    path = write_data("d.tsv", ["label\ttext", "1\ta"])
    (path.parent / "labels.json").write_text('["no"]')
    with pytest.raises(UnusableData, match=r"labels.json: expected \{\"labels\""):
        read(path)
    path.write_bytes(b"label\ttext\n1\tcaf\xe9\n")
    with pytest.raises(UnusableData, match=r"d.tsv: not UTF-8"):
        read(path)
    path.unlink()
    with pytest.raises(UnusableData, match="no such file"):
        read(path)
