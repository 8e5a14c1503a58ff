from pathlib import Path

import pytest

from loadtest.load.texts import Example, NoTexts, load_texts, made_up


@pytest.mark.parametrize(
    ("name", "content", "column", "expected"),
    [
        ("d.txt", "one two\n\n  three \n", None, (Example("one two"), Example("three"))),
        ("d.tsv", "stars\tpraise\n5\tgood\n", "praise", (Example("good"),)),
        ("d.conll", "New\tB-x\nYork\tI-x\n", None, (Example("New York"),)),
        (
            "d.tsv",
            'label\ttext_a\ttext_b\n1\tit\'s "fine"\t\n0\tfirst\tsecond\n',
            None,
            (
                Example('it\'s "fine"', "1"),
                Example({"text": "first", "text_pair": "second"}, "0"),
            ),
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::models.data.notes.DataNote")
def test_file_is_lines_or_a_table(
    tmp_path: Path, name: str, content: str, column: str | None, expected: tuple[Example, ...]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert load_texts(path, column) == expected


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("d.txt", "", "has no texts"),
        ("d.tsv", "stars\tpraise\n5\tgood\n", "line 1: found stars, praise; none"),
        ("d.tsv", None, "no such file"),
    ],
)
def test_file_without_texts_is_refused(
    tmp_path: Path, name: str, content: str | None, complaint: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(NoTexts, match=complaint):
        load_texts(path)


def test_label_is_right_by_name_or_by_number() -> None:
    labels = ("negative", "positive")
    assert Example("x", "1").right("positive", labels)
    assert Example("x", "positive").right("positive", labels)
    assert Example("x", "0").right("positive", labels) is False
    assert Example("x", "1.0").right("positive", labels)
    assert Example("x", "1").right("1", ("0", "1"))
    assert Example("x", "1").right("1", ("1", "2", "3"))


def test_a_name_that_the_model_has_counts_whatever_names_the_file_lists() -> None:
    example = Example("x", "pos", ("neg", "pos", "neutral"))
    assert example.right("pos", ("neg", "pos")) is True
    assert example.right("neg", ("neg", "pos")) is False


@pytest.mark.parametrize("label", [None, "7", "-", "-1", "NaN", "0.9", "{'x': 1}"])
def test_a_label_that_the_model_does_not_have_is_neither_right_nor_wrong(label: str | None) -> None:
    assert Example("x", label).right("positive", ("negative", "positive")) is None


def test_label_is_right_by_the_names_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("label,text\n0,a\n")
    (tmp_path / "labels.json").write_text('{"labels": ["Positive", "Negative"]}')
    (example,) = load_texts(tmp_path / "d.csv")
    assert example.right("positive", ("negative", "positive"))
    assert example.right("LABEL_0", ("LABEL_0", "LABEL_1"))


def test_made_up_texts_are_always_the_same_and_as_long_as_those_of_sst2() -> None:
    texts = made_up()
    assert texts == made_up()
    assert len(set(texts)) > 1000
    lengths = [len(str(text.inputs).split()) for text in texts]
    assert 1 <= min(lengths) <= max(lengths) <= 53
    assert 22 < sum(lengths) / len(lengths) < 25
