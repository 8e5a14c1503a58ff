"""What a report says: pages, examples, parts on rows made by hand, and sentences."""

import re
from dataclasses import replace

import numpy as np
import pytest

from models.data.examples import Example, Word
from models.profiles import profiles_policy
from models.quality.costs import MS, TimeCost
from models.quality.page import Picture, html_page, markdown_page, numeric, table
from models.quality.report.calibration import binned, decisions_of, reliability
from models.quality.report.examples import (
    EASIEST,
    GIVEN,
    HARDEST,
    OVERTHOUGHT,
    chosen_rows,
    example_row,
    examples_part,
)
from models.quality.report.exits import overthinking
from models.quality.report.rules import terms
from models.quality.report.wording import better_than_full, gain_sentence, headline
from models.quality.rule_families import rule_families
from models.quality.style import COLOURS
from serve.classifier.exit_costs import ExitCosts
from serve.policy.document import Policy
from serve.policy.target import Target, TargetChoice
from serve.rules import EntropyRule, NeverRule
from serve.rules.traits import Traits
from tests.support.recordings import analysed, margins, noisy, said

PAGE = [
    "# A <b>page</b>",
    "* rows: 872",
    "So `a < b` & **more**, not ![far](http://far/p.svg) or [off](http://off).",
    table(("name", "%"), [["x | y", "+1.50"], ["z", "-"]]),
    Picture("p.svg", "A picture", b"<svg/>"),
]


def test_html_holds_its_pictures_and_fetches_nothing() -> None:
    html = html_page(PAGE)
    assert "<h1>A &lt;b&gt;page&lt;/b&gt;</h1>" in html
    assert "<code>a &lt; b</code> &amp; <strong>more</strong>" in html
    assert "<li>rows: 872</li>" in html
    assert '<td>x | y</td>\n<td style="text-align:right">+1.50</td>' in html
    assert 'src="data:image/svg+xml;base64,PHN2Zy8+"' in html
    assert set(re.findall(r'(?:src|href)="([a-z]+):', html)) == {"data"}
    assert "<script" not in html


def test_markdown_refers_to_its_pictures_by_their_names() -> None:
    words = markdown_page(PAGE)
    assert "| name | % |\n| --- | ---: |\n| x \\| y | +1.50 |" in words
    assert "![A picture](p.svg)" in words


def test_columns_of_numbers_are_told_from_words() -> None:
    rows = [[1.5, "-0.20", "1 to 2", None], [2, "-", "3", "7"]]
    assert [numeric(rows, place) for place in range(4)] == [True, True, False, True]


def test_there_is_a_colour_for_every_family_of_rules() -> None:
    seen = noisy("single_label")
    learned = Traits(seen.traits.exits, seen.traits.labels, learned=True)
    errors = np.random.default_rng(0).random((3, 60), np.float32)
    seen = replace(seen, uncertainty=errors, traits=learned)
    assert len(rule_families(seen)) <= len(set(COLOURS))


def test_profiles_that_need_a_certificate_say_that_there_is_none() -> None:
    seen = analysed(noisy("single_label"), policy=profiles_policy())
    assert terms(seen) == []
    times = TimeCost(ExitCosts((0.001,) * 3, 0.0, 0.0))
    (found,) = terms(replace(seen, costs=seen.costs | {MS: times}))
    assert "Nothing is certified for this variant" in found


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


def test_the_table_of_examples_shows_texts_as_they_are() -> None:
    seen = analysed(margins([[9, -9, 9]], [1]), texts=["*so* [a](b) | `c` &amp; <i> $5 not_this"])
    (legend, shown), _ = examples_part(seen, 1)[1:]
    assert "right (✓) or wrong (✗)" in legend
    assert "| yes ✓ 0.001 | no ✗ 0.001 | yes ✓ 0.001 |" in shown
    html = html_page(["# Page", shown])
    assert "<td>*so* [a](b) | `c` &amp;amp; &lt;i&gt; $5 not_this</td>" in html


# Right at once; wrong, then right; right, then wrong; wrong throughout.
FOUR = margins([[9, 9, 9], [-1, -2, 3], [2, -1, -1], [-3, -3, -3]], [1, 1, 1, 1])


def test_overthinking_and_the_oracle() -> None:
    assert FOUR.right is not None
    found = overthinking(FOUR.right, (2, 4, 6))
    assert (found.overthought, found.rescued) == (0.25, 0.25)
    assert found.right_now_wrong_later == (0.25, 0, 0)
    assert found.wrong_now_right_later == (0.25, 0.25, 0)
    assert (found.oracle_accuracy, found.full_accuracy) == (0.75, 0.5)
    # The rows leave at layers 2, 6, 2 and, as no exit has it right, 6.
    assert found.oracle_depth == 4
    assert found.oracle_shares == (0.5, 0, 0.5)


def test_calibration_error_weighs_each_bins_gap_by_its_decisions() -> None:
    sure = np.array([0.55, 0.55, 0.95, 0.95, 0.95, 1.0])
    right = np.array([True, False, True, True, False, True])
    found = binned((sure, right))
    assert found.counts.tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 0, 4]
    expected = (2 * abs(0.55 - 0.5) + 4 * abs((3 * 0.95 + 1) / 4 - 0.75)) / 6
    assert found.ece == pytest.approx(expected)


def test_several_labels_are_as_many_decisions_and_padding_is_none() -> None:
    several = noisy("multi_label")
    assert len(decisions_of(several, several.logits[0])[0]) == 60 * 3
    assert decisions_of(several, several.logits[0])[0].min() >= 0.5
    tagged = noisy("token")
    assert tagged.counted is not None
    assert len(decisions_of(tagged, tagged.logits[0])[1]) == tagged.counted.sum()


def test_the_temperature_changes_the_second_error_only() -> None:
    plain = noisy("single_label")
    hot = replace(plain, temperatures=(2.0, 2.0, 2.0))
    for one, other in zip(reliability(plain), reliability(hot), strict=True):
        assert one.bins.ece == other.bins.ece
        assert one.scaled_ece == one.bins.ece != other.scaled_ece


EASY, HARD = [9.0, 9.0, 9.0], [-0.1, -0.1, 9.0]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([EASY] * 100 + [HARD] * 100, ("by entropy gains 2", "points of accuracy", "interval +")),
        # Every exit says the same, so leaving early can neither gain nor lose.
        ([EASY, HARD[::-1], [9.0] * 3], ("is not shown to gain anything", "which includes 0")),
        # The surer a text at the first exit, the more surely that exit is wrong.
        ([[-9.0, 0.1, 9.0]] * 100 + [[0.2, 0.1, 9.0]] * 100, ("early exit by entropy loses",)),
        ([[1.0], [2.0]], ("has a single exit",)),
    ],
)
def test_a_gain_and_a_loss_are_stated_with_their_interval(
    rows: list[list[float]], words: tuple[str, ...]
) -> None:
    found = gain_sentence(analysed(margins(rows, [1] * len(rows))))
    assert all(each in found for each in words), found


def test_exits_that_no_rule_compares_are_not_called_a_single_one() -> None:
    seen = noisy("regression")
    traits = replace(seen.traits, exits=(1, 4))
    words = gain_sentence(analysed(replace(seen, traits=traits, logits=seen.logits[1:])))
    assert "no text can leave early, because rules for numbers compare an exit with" in words
    assert "single" not in words


def test_a_correlation_is_no_percentage() -> None:
    words = gain_sentence(analysed(noisy("regression")))
    assert "hundredths of Pearson" in words
    assert "early exit by patience" in words


def test_a_layer_that_is_better_than_full_depth_is_named() -> None:
    overthought = [[-9.0, 9.0, -9.0], [9.0, 9.0, 9.0]]
    found = analysed(margins(overthought, [1, 1]))
    words = (
        "hand-made: accuracy is 100.00 % if every text stops at layer 4, "
        "more than 50.00 % at full depth."
    )
    assert better_than_full(found) == words
    assert better_than_full(analysed(margins([EASY, HARD], [1, 1]))) is None


def test_the_headline_is_about_what_requests_without_exit_get() -> None:
    leave = {"soon": EntropyRule(threshold=0.1), "later": NeverRule()}
    recorded = margins([EASY] * 3 + [[9.0, 9.0, -9.0]], [1] * 4)
    words = headline(analysed(recorded, policy=Policy(default="soon", profiles=leave)))
    assert words == (
        "hand-made on hand/made.tsv: requests without `exit` (soon) run 2.00 of 6 layers in the "
        "mean, by entropy < 0.1; accuracy is 100.00 instead of 75.00 %; 25.00 % of the answers are "
        "others than full depth's."
    )
    assert headline(analysed(recorded, policy=Policy(default="later", profiles=leave))).endswith(
        "(later) run all 6 layers."
    )
    certified = Policy(default=TargetChoice(target=Target(max_disagreement=0.01)))
    assert "early exit by entropy" in headline(analysed(recorded, policy=certified))
