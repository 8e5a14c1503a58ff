"""Data files beside the labels of a model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.data.notes import DataNote
from models.errors import UnusableData
from models.quality.data import read_for
from serve.rules.traits import Traits
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
