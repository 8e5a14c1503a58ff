import json
from pathlib import Path

import pytest

from models.certification.texts import LabelledText, distinct, read_file, split, texts_in
from models.errors import UnusableData
from serve.bundle.loader import Bundle
from serve.tokenization.tokenizer import Text

TEXTS = [LabelledText(Text(f"w{i}", f"w{i % 7}" if i % 2 else None), i % 3) for i in range(3000)]


def test_no_text_is_on_both_sides_and_a_third_tunes() -> None:
    tuning, certifying = split(TEXTS, 1 / 3)
    assert not {each.text for each in tuning} & {each.text for each in certifying}
    assert len(tuning) + len(certifying) == len(TEXTS)
    assert len(tuning) == pytest.approx(1000, abs=80)


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
    files = distinct([read_file(path, bundle.manifest, labelled=False) for path in (one, two)])
    assert [each.text.text for each in texts_in(files)] == ["w1 w2", "w3", "w4", "w5"]
    assert [file.data.rows for file in files] == [2, 2]
    known = [LabelledText(Text("w4"), None)]
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
    found = read_file(path, bundle.manifest, labelled=False).texts
    assert found == [LabelledText(Text("w1 w2"), None), LabelledText(Text("w3 w4"), None)]


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
        read_file(path, bundle.manifest, labelled)


def test_ids_are_those_of_the_names_beside_the_file(tmp_path: Path, bundle: Bundle) -> None:
    path = tmp_path / "a.csv"
    path.write_text("label,text\n0,w1\npositive,w2\n")
    labels = bundle.manifest.labels
    (tmp_path / "labels.json").write_text(json.dumps({"labels": labels[::-1]}))
    found = [each.label for each in read_file(path, bundle.manifest, labelled=True).texts]
    assert found == [len(labels) - 1, labels.index("positive")]
