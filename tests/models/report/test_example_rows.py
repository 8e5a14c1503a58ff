"""The texts that are worth showing."""

import numpy as np

from models.data.examples import Example, Word
from models.report.parts.example_rows import (
    EASIEST,
    GIVEN,
    HARDEST,
    OVERTHOUGHT,
    chosen_rows,
    example_row,
)
from serve.rules.traits import Traits
from tests.support.recordings import margins, noisy, said

# Sure and right; unsure; right twice and then surely wrong; right once and then surely wrong.
TEXT = Example("a text", None, 0)
ROWS = [[9, 9, 9], [0.1, -0.1, 0.1], [3, 3, -9], [-3, 3, -9]]


def test_texts_are_chosen_by_what_the_exits_make_of_them() -> None:
    seen = margins(ROWS, [1, 1, 1, 1])
    assert list(chosen_rows(seen, 1)) == [(OVERTHOUGHT, 2), (HARDEST, 1), (EASIEST, 0)]
    # None is shown twice.
    assert sorted(row for _, row in chosen_rows(seen, 9)) == [0, 1, 2, 3]
    assert list(chosen_rows(seen, 0)) == []


def test_of_a_regression_the_errors_decide() -> None:
    traits = Traits((1, 2), ("stars",), "regression")
    values = np.array([[[1.0], [1.0], [4.0]], [[1.0], [5.0], [0.0]]], np.float32)
    seen = said(values, traits, [1.0, 1.0, 3.0])
    assert list(chosen_rows(seen, 1)) == [(OVERTHOUGHT, 1), (HARDEST, 2), (EASIEST, 0)]
    row = example_row(seen, TEXT, HARDEST, 2)
    assert row.gold == "3.00"
    assert [cell.answer for cell in row.cells] == ["4.00", "0.00"]
    assert row.cells[0].entropy is None


def test_a_row_shows_label_entropy_and_whether_it_is_right() -> None:
    row = example_row(margins(ROWS, [1, 1, 1, 1]), TEXT, OVERTHOUGHT, 2)
    assert row.gold == "yes"
    assert [cell.answer for cell in row.cells] == ["yes", "yes", "no"]
    assert [cell.right for cell in row.cells] == [True, True, False]
    assert row.cells[2].entropy is not None
    assert row.cells[2].entropy < 0.01
    given = example_row(margins(ROWS, [0, 0, 0, 0]), TEXT, GIVEN, 2)
    assert given.gold is None
    assert {cell.right for cell in given.cells} == {None}


def test_a_sets_labels_are_listed() -> None:
    several = noisy("multi_label")
    several.logits[0, 0], several.logits[1, 0] = [5, -5, 5], [-5, -5, -5]
    row = example_row(several, TEXT, HARDEST, 0)
    assert [cell.answer for cell in row.cells][:2] == ["red, blue", "none"]


def test_a_taggers_entities_are_named_with_their_words() -> None:
    traits = Traits((1,), ("O", "B-PER", "I-PER"), "token")
    logits = 9 * np.eye(3, dtype=np.float32)[[[[1, 2, 0]]]]
    seen = said(logits, traits, [[0, 1, 0]], counted=np.ones((1, 3), bool))
    words = [Word(0, 3, 0), Word(4, 9, 1), Word(10, 16, 0)]
    row = example_row(seen, Example("Ada Byron slept.", None, words), HARDEST, 0)
    assert (row.cells[0].answer, row.gold) == ("Ada Byron (PER)", "Byron (PER)")
