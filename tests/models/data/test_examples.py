"""Reading labelled data: formats, columns, labels, and the sentence each mistake gets."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.data.examples import Example, read_rows
from models.data.labels import label_names, to_examples
from models.errors import UnusableData

Write = Callable[..., Path]


def read(path: Path, labels: list[str] | None = None) -> list[Example]:
    rows = read_rows(path)
    return to_examples(path, rows, labels or label_names(path, rows))


def test_tab_separated_text_keeps_its_quotes(write_data: Write) -> None:
    path = write_data("train.tsv", ["label\ttext_a\ttext_b", '1\t"so , good\t', "0\tbad\tor not"])
    assert read(path) == [Example('"so , good', None, 1), Example("bad", "or not", 0)]


def test_comma_separated_text_follows_csv_quoting(write_data: Write) -> None:
    path = write_data("train.csv", ["sentence,label", '"so, ""good""",pos', "bad,neg"])
    assert read(path) == [Example('so, "good"', None, 1), Example("bad", None, 0)]


def test_json_lines_take_labels_as_numbers_or_text(write_data: Write) -> None:
    lines = ['{"text": "good", "label": 1}', "", '{"text": "bad", "label": "0"}']
    assert read(write_data("train.jsonl", lines)) == [
        Example("good", None, 1),
        Example("bad", None, 0),
    ]


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
    ],
)
def test_unusable_data_is_told_with_file_and_line(
    write_data: Write, name: str, lines: list[str], message: str
) -> None:
    with pytest.raises(UnusableData, match=message):
        read_rows(write_data(name, lines))


@pytest.mark.parametrize(("name", "end"), [("d.tsv", "\t"), ("d.csv", ",")])
def test_separator_at_the_end_of_a_line_is_no_field(write_data: Write, name: str, end: str) -> None:
    lines = [f"label{end}text", f"1{end}good{end}"]
    assert [row.text_a for row in read_rows(write_data(name, lines))] == ["good"]


def test_unknown_label_is_told_with_file_line_and_the_known_ones(write_data: Write) -> None:
    path = write_data("d.tsv", ["label\ttext", "0\ta", "perhaps\tb"], labels=["no", "yes"])
    with pytest.raises(UnusableData, match=r"line 3: unknown label 'perhaps'.* no, yes, or 0 to 1"):
        read(path)


def test_one_label_is_not_enough(write_data: Write) -> None:
    with pytest.raises(UnusableData, match="at least two labels are needed, found 1"):
        read(write_data("d.tsv", ["label\ttext", "1\ta"]))


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnusableData, match="no such file"):
        read_rows(tmp_path / "none.tsv")


def test_damaged_labels_file_is_told(write_data: Write) -> None:
    path = write_data("d.tsv", ["label\ttext", "1\ta"])
    (path.parent / "labels.json").write_text('["no"]')
    with pytest.raises(UnusableData, match=r"labels.json: expected \{\"labels\""):
        label_names(path, read_rows(path))


def test_text_that_is_not_utf8_is_told(tmp_path: Path) -> None:
    path = tmp_path / "d.tsv"
    path.write_bytes(b"label\ttext\n1\tcaf\xe9\n")
    with pytest.raises(UnusableData, match=r"d.tsv: not UTF-8"):
        read_rows(path)


def test_label_that_is_a_name_and_an_id_counts_as_the_name(write_data: Write) -> None:
    path = write_data("d.tsv", ["label\ttext", "1\ta", "2\tb"])
    assert [example.label for example in read(path)] == [0, 1]


def test_byte_order_mark_is_not_part_of_the_first_column(write_data: Write) -> None:
    path = write_data("d.csv", ["\ufefflabel,text", "0,a", "1,b"])
    assert [example.text_a for example in read(path)] == ["a", "b"]
