"""Data by task: what labels mean, which task a file tells, and what mistakes are told."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from models.data.datasets import Dataset, read_dataset, task_of
from models.data.examples import Example, Word
from models.errors import UnusableData

Write = Callable[..., Path]


def test_several_labels_are_marks_in_the_order_of_the_names(write_data: Write) -> None:
    path = write_data("d.tsv", ["labels\ttext", "joy|anger\ta", "love\tb", "\tc"])
    assert read_dataset(path, "multi_label") == Dataset(
        ["anger", "joy", "love"],
        [
            Example("a", None, (1.0, 1.0, 0.0)),
            Example("b", None, (0.0, 0.0, 1.0)),
            Example("c", None, (0.0, 0.0, 0.0)),
        ],
    )


def test_several_labels_may_be_a_json_list_of_names_or_ids(write_data: Write) -> None:
    lines = ['{"text": "a", "labels": ["x|y", "z"]}', '{"text": "b", "labels": [1]}',
             '{"text": "c", "labels": []}']  # fmt: skip
    found = read_dataset(write_data("d.jsonl", lines, labels=["x|y", "z"]), "multi_label")
    assert [e.label for e in found.examples] == [(1, 1), (0, 1), (0, 0)]


@pytest.mark.filterwarnings("ignore::models.data.notes.DataNote")
def test_regression_reads_numbers_of_single_texts_and_pairs(write_data: Write) -> None:
    path = write_data("d.tsv", ["score\ttext_a\ttext_b", "2.5\ta\tb", "-1\tc\t"])
    assert read_dataset(path, "regression") == Dataset(
        ["score"], [Example("a", "b", 2.5), Example("c", None, -1.0)]
    )
    assert read_dataset(path, "regression", ["similarity"]).labels == ["similarity"]


def test_words_are_joined_to_a_text_that_they_are_found_in(write_data: Write) -> None:
    path = write_data("d.conll", ["New York\tB-place", "sleeps\tO", "", "So\tO"])
    labels, (first, second) = read_dataset(path, "token")
    assert labels == ["O", "B-place"]
    assert first == Example("New York sleeps", None, [Word(0, 8, 1), Word(9, 15, 0)])
    assert second.text_a == "So"


def test_tags_are_in_an_order_that_keeps_types_together(write_data: Write) -> None:
    path = write_data("d.conll", ["a\tI-x", "b\tB-y", "c\tB-x", "d\tO"])
    assert read_dataset(path, "token").labels == ["O", "B-x", "I-x", "B-y"]


def test_labels_and_tags_that_are_numbers_are_in_order_of_size(write_data: Write) -> None:
    path = write_data(
        "d.csv", ["label,text", *(f"{label},a" for label in ("10", "2", "-2", "1.5"))]
    )
    assert read_dataset(path, "single_label").labels == ["-2", "1.5", "2", "10"]
    path = write_data("d.conll", ["a\t10", "b\t2", "c\t0"])
    assert read_dataset(path, "token").labels == ["0", "2", "10"]


@pytest.mark.parametrize(
    ("name", "lines", "task"),
    [
        ("d.tsv", ["label\ttext", "1\ta", "0\tb"], "single_label"),
        ("d.tsv", ["label\ttext", "1\ta", "2.0\tb"], "single_label"),
        ("d.tsv", ["label\ttext", "1.5\ta", "2\tb"], "regression"),
        ("d.tsv", ["label\ttext", "1.5\ta", "high\tb"], "single_label"),
        ("d.csv", ["score,text", "1,a"], "regression"),
        ("d.tsv", ["labels\ttext", "a|b\ta"], "multi_label"),
        ("d.tsv", ["token\ttag", "a\tO"], "token"),
        ("d.conll", ["a\tO"], "token"),
        ("d.jsonl", ['{"tokens": ["a"], "tags": ["O"]}'], "token"),
        ("d.jsonl", ['{"text": "a", "labels": ["x"]}'], "multi_label"),
    ],
)
def test_task_is_told_by_the_file_where_it_is_plain(
    write_data: Write, name: str, lines: list[str], task: str
) -> None:
    assert task_of(write_data(name, lines)) == task


def test_labels_file_may_tell_the_task(write_data: Write) -> None:
    path = write_data("d.tsv", ["label\ttext", "1\ta", "2\tb"])
    (path.parent / "labels.json").write_text('{"labels": [], "task": "regression"}')
    assert task_of(path) == "regression"
    assert read_dataset(path, "regression").labels == ["score"]
    (path.parent / "labels.json").write_text('{"labels": ["no", "yes"], "task": "multilabel"}')
    with pytest.raises(UnusableData, match=r"labels.json: the task is 'multilabel', and none of"):
        task_of(path)


@pytest.mark.parametrize(
    ("task", "lines", "labels", "message"),
    [
        ("regression", ["label\ttext", "1\ta", "high\tb"], (), r"line 3: 'high' is no number"),
        ("regression", ["label\ttext", "nan\ta"], (), r"line 2: 'nan' is no number"),
        ("regression", ["label\ttext", "1_5\ta"], (), r"line 2: '1_5' is no number"),
        ("regression", ["label\ttext", "inf\ta"], (), r"line 2: 'inf' is no number"),
        ("regression", ["label\ttext", "\ta"], (), r"line 2: the label is empty"),
        (
            "regression",
            ["x\ttext", "1\ta"],
            (),
            r"line 1: found x, text; none .* labels \(label, .*, score",
        ),
        ("regression", ["label\ttext", "1\ta"], ("a", "b"), r"needs one name, not 2: a, b"),
        ("multi_label", ["labels\ttext", "a|d\tx"], ("a", "b"), r"line 2: unknown label 'd'"),
        ("multi_label", ["labels\ttext", "a\tx"], (), r"at least two labels are needed, found a"),
        ("single_label", ["label\ttext", "0\tx"], ("a", "b", "a"), r"must differ, but a is there"),
        ("single_label", ["label\ttext", "0\tx"], ("a", " "), r"a label.s name is empty: .a., . ."),
        ("multi_label", ["text", "x"], (), r"line 1: found text; none .* labels \(labels, label"),
        (
            "token",
            ["a\tO", "b\tX"],
            ("O", "B-x"),
            r"line 2: unknown label 'X'; the labels are O, B",
        ),
    ],
)
def test_data_that_does_not_fit_the_task_is_told_with_its_line(
    write_data: Write, task: str, lines: list[str], labels: Sequence[str], message: str
) -> None:
    with pytest.raises(UnusableData, match=message):
        read_dataset(write_data("d.tsv", lines), task, labels)
