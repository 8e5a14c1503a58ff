"""Data files beside the labels of a model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.data.notes import DataNote
from models.errors import UnusableData
from models.quality.data import LabelledText, distinct, read_file, read_for, split, texts_in
from serve.bundle.loader import Bundle
from serve.rules.traits import Traits
from serve.tokenization.tokenizer import Text
from tests.support.traits import two_labels

Write = Callable[..., Path]
LINES = ["label\ttext", "1\tgood", "0\tbad"]


def labels_of(path: Path, traits: Traits) -> list[object]:
    return [example.label for example in read_for(path, traits).examples]


def test_ids_are_those_of_the_names_beside_the_file(write_data: Write) -> None:
    same = write_data("dev.tsv", LINES, labels=["no", "yes"])
    assert labels_of(same, two_labels((1,))) == [1, 0]
    turned = write_data("dev.tsv", LINES, labels=["Yes", "No"])
    assert labels_of(turned, two_labels((1,))) == [0, 1]


def test_tags_and_sets_follow_their_names_too(write_data: Write) -> None:
    tags = write_data("tags.conll", ["film\t0", "good\t2"], labels=["B-x", "I-x", "O"])
    traits = Traits((1,), ("O", "B-x", "I-x"), "token")
    assert [word.tag for word in read_for(tags, traits).examples[0].label] == [1, 0]
    sets = write_data("sets.tsv", ["labels\ttext", "a|c\tgood"], labels=["a", "b", "c"])
    assert labels_of(sets, Traits((1,), ("c", "a", "b"), "multi_label")) == [(1.0, 1.0, 0.0)]


def test_other_names_are_taken_by_place_and_that_is_said(write_data: Write) -> None:
    data = write_data("dev.tsv", LINES, labels=["no", "yes"])
    with pytest.warns(DataNote, match="dev.tsv: Labels were taken by their place"):
        found = read_for(data, Traits((1,), ("LABEL_0", "LABEL_1")))
    assert [example.label for example in found.examples] == [1, 0]
    assert found.note == "Labels were taken by their place: no is LABEL_0, yes is LABEL_1."


@pytest.mark.parametrize(
    ("lines", "named", "traits", "message"),
    [
        (LINES, ["a", "b", "c"], two_labels((1,)), "has 3 labels (a, b, c), the model has 2"),
        (
            LINES,
            ["yes", "nope"],
            two_labels((1,)),
            "labels.json beside it has yes, nope, the model has no, yes: yes would change places",
        ),
        (["label\ttext", "maybe\tgood"], None, two_labels((1,)), "unknown label 'maybe'"),
        (["label\ttext"], None, two_labels((1,)), "dev.tsv: the file has no rows"),
        (LINES, None, Traits((1,), ("O", "B-x"), "token"), "a table of texts; token"),
        (["label\ttext", "x\tgood"], None, Traits((1,), ("stars",), "regression"), "is no number"),
    ],
)
def test_data_that_do_not_fit_the_model_are_refused(
    write_data: Write, lines: list[str], named: list[str] | None, traits: Traits, message: str
) -> None:
    with pytest.raises(UnusableData) as refused:
        read_for(write_data("dev.tsv", lines, labels=named), traits)
    assert message in str(refused.value)


TEXTS = [
    LabelledText(Text(f"w{i}", f"w{i % 7}" if i % 2 else None), i % 3, tokens=i)
    for i in range(3000)
]


def test_no_text_is_on_both_sides_and_a_third_tunes() -> None:
    tuning, certifying = split(TEXTS, 1 / 3)
    assert not {each.text for each in tuning} & {each.text for each in certifying}
    assert len(tuning) + len(certifying) == len(TEXTS)
    assert len(tuning) == pytest.approx(1000, abs=80)


def test_a_text_that_comes_often_is_on_both_sides_as_often_as_by_chance() -> None:
    message = LabelledText(Text("out of office"), 0, tokens=3000)
    tuning, certifying = split([*TEXTS, *[message] * 900], 1 / 3)
    assert tuning.count(message) == pytest.approx(300, abs=60)
    assert tuning.count(message) + certifying.count(message) == 900
    others = split(TEXTS, 1 / 3)
    assert (
        tuple([each for each in side if each != message] for side in (tuning, certifying)) == others
    )


def test_the_side_of_a_text_hangs_on_nothing_but_the_text() -> None:
    tuning, _ = split(TEXTS, 1 / 3)
    some = [each._replace(label=0) for each in TEXTS[::-3]]
    again, _ = split(some, 1 / 3)
    expected = {each.text for each in some} & {each.text for each in tuning}
    assert {each.text for each in again} == expected


def test_repeated_texts_count_once_and_tuning_texts_do_not_certify(
    tmp_path: Path, bundle: Bundle
) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("w1 w2\nw3\n\nw1 w2\n")
    two.write_text("w3\nw4\n  w5  \n")
    files = distinct([read_file(path, bundle, labelled=False) for path in (one, two)])
    assert [each.text.text for each in texts_in(files)] == ["w1 w2", "w3", "w4", "w5"]
    assert [file.data.rows for file in files] == [2, 2]
    known = [each for each in texts_in(files) if each.text.text == "w4"]
    assert "w4" not in [each.text.text for each in texts_in(distinct(files, known))]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "w1 w2\nw3 w4\n"),
        ("a.tsv", "text\nw1 w2\nw3 w4\n"),
        ("a.csv", "label,text\n?,w1 w2\n?,w3 w4\n"),
        ("a.jsonl", '{"tokens": ["w1", "w2"]}\n{"tokens": ["w3", "w4"]}\n'),
        ("b.jsonl", '{"text": "w1 w2"}\n{"text": "w3 w4", "label": [7]}\n'),
        ("a.conll", "w1\tO\nw2\tB-x\n\nw3\tO\nw4\tO\n"),
    ],
)
def test_labels_are_ignored_or_missing_in_unlabelled_files(
    tmp_path: Path, bundle: Bundle, name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    found = read_file(path, bundle, labelled=False).texts
    assert [each[:2] for each in found] == [(Text("w1 w2"), None), (Text("w3 w4"), None)]


@pytest.mark.parametrize(
    ("name", "content", "labelled", "message"),
    [
        ("a.txt", "w1\n", True, "a text per line, and no labels; .*--unlabelled"),
        ("a.txt", "\n", False, "the file has no texts"),
        ("a.tsv", "label\nno\n", False, "line 1: found label; none is known to hold texts"),
        ("a.tsv", "label\ttext\nodd\tw1\n", True, "unknown label 'odd'; the labels are negative"),
    ],
)
def test_unusable_files_are_refused_with_a_remedy(
    tmp_path: Path, bundle: Bundle, name: str, content: str, labelled: bool, message: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UnusableData, match=message):
        read_file(path, bundle, labelled)
