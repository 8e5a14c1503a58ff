from pathlib import Path

import pytest

from loadtest.load.texts import Example, NoTexts, load_texts, made_up


@pytest.mark.parametrize(
    ("content", "column", "expected"),
    [
        ("one two\n\n  three \n", None, (Example("one two"), Example("three"))),
        (
            'label\ttext_a\ttext_b\n1\tit\'s "fine"\t\n0\tfirst\tsecond\n',
            None,
            (
                Example('it\'s "fine"', "1"),
                Example({"text": "first", "text_pair": "second"}, "0"),
            ),
        ),
        ("stars\treview\n5\tgood\n", "review", (Example("good"),)),
    ],
)
def test_file_is_lines_or_a_table(
    tmp_path: Path, content: str, column: str | None, expected: tuple[Example, ...]
) -> None:
    path = tmp_path / "texts.tsv"
    path.write_text(content)
    assert load_texts(path, column) == expected


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "holds no text"),
        ("\n\n", "holds no text"),
        ("text\tlabel\n", "holds no text"),
        ("stars\treview\n5\tgood\n", "no column text or sentence or text_a; it has stars, review"),
        (None, "cannot be read"),
    ],
)
def test_file_without_texts_is_refused(tmp_path: Path, content: str | None, complaint: str) -> None:
    path = tmp_path / "texts.tsv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(NoTexts, match=complaint):
        load_texts(path)


def test_label_is_right_by_name_or_by_number() -> None:
    labels = ("negative", "positive")
    assert Example("x", "1").right("positive", labels)
    assert Example("x", "positive").right("positive", labels)
    assert not Example("x", "0").right("positive", labels)
    assert not Example("x", "7").right("positive", labels)


def test_made_up_texts_are_always_the_same_and_as_long_as_those_of_sst2() -> None:
    texts = made_up()
    assert texts == made_up()
    assert len(set(texts)) > 1000
    lengths = [len(str(text.inputs).split()) for text in texts]
    assert 1 <= min(lengths) <= max(lengths) <= 53
    assert 22 < sum(lengths) / len(lengths) < 25
