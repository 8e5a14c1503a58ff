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
    ("name", "content"),
    [("d.txt", ""), ("d.tsv", "stars\tpraise\n5\tgood\n"), ("d.tsv", None)],
)
def test_file_without_texts_is_refused(tmp_path: Path, name: str, content: str | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(NoTexts):
        load_texts(path)


@pytest.mark.parametrize(
    ("label", "said", "labels", "names", "right"),
    [
        *((label, "positive", ("negative", "positive"), (), True) for label in ("1", "1.0")),
        ("positive", "positive", ("negative", "positive"), (), True),
        ("0", "positive", ("negative", "positive"), (), False),
        ("1", "1", ("0", "1"), (), True),
        ("1", "1", ("1", "2", "3"), (), True),
        # A name that the model has counts, whatever names the file lists.
        ("pos", "pos", ("neg", "pos"), ("neg", "pos", "neutral"), True),
        ("pos", "neg", ("neg", "pos"), ("neg", "pos", "neutral"), False),
        # A label that the model does not have is neither right nor wrong.
        *(
            (label, "positive", ("negative", "positive"), (), None)
            for label in (None, "7", "-", "-1", "NaN", "0.9", "{'x': 1}")
        ),
    ],
)
def test_label_is_right_by_name_or_by_number(
    label: str | None,
    said: str,
    labels: tuple[str, ...],
    names: tuple[str, ...],
    right: bool | None,
) -> None:
    assert Example("x", label, names).right(said, labels) is right


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
