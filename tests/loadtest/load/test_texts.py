from pathlib import Path

import pytest

from loadtest.load.texts import Example, NoTexts, load_texts, made_up


def test_plain_file_has_a_text_per_line(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("one two\n\n  three \n")
    assert load_texts(path) == (Example("one two"), Example("three"))


def test_table_gives_texts_pairs_and_labels(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text('label\ttext_a\ttext_b\n1\tit\'s "fine"\t\n0\tfirst\tsecond\n')
    pair = {"text": "first", "text_pair": "second"}
    assert load_texts(path) == (Example('it\'s "fine"', "1"), Example(pair, "0"))


def test_named_column_is_the_text(tmp_path: Path) -> None:
    path = tmp_path / "reviews.tsv"
    path.write_text("stars\treview\n5\tgood\n")
    assert load_texts(path, "review") == (Example("good"),)


def test_missing_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "reviews.tsv"
    path.write_text("stars\treview\n5\tgood\n")
    with pytest.raises(NoTexts, match="no column text or sentence or text_a; it has stars, review"):
        load_texts(path)


@pytest.mark.parametrize("content", ["", "\n\n", "text\tlabel\n"])
def test_file_without_text_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "empty.txt"
    path.write_text(content)
    with pytest.raises(NoTexts, match="holds no text"):
        load_texts(path)


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTexts, match="cannot be read"):
        load_texts(tmp_path / "nothing")


def test_label_is_right_by_name_or_by_number() -> None:
    labels = ("negative", "positive")
    assert Example("x", "1").right("positive", labels)
    assert Example("x", "positive").right("positive", labels)
    assert not Example("x", "0").right("positive", labels)
    assert not Example("x", "7").right("positive", labels)


def test_made_up_texts_are_always_the_same() -> None:
    assert made_up() == made_up()
    assert len(set(made_up())) > 1000
