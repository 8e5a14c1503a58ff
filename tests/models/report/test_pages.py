"""Pages as Markdown and as one HTML file."""

import re
from dataclasses import replace

import numpy as np

from models.profiles import profiles_policy
from models.quality.costs import MS, TimeCost
from models.quality.rule_families import rule_families
from models.report.html import html_page
from models.report.markdown import Picture, markdown_page, numeric, table
from models.report.parts.example_table import _wrapped
from models.report.parts.rules import terms
from models.report.style import COLOURS
from serve.classifier.exit_costs import ExitCosts
from serve.rules.traits import Traits
from tests.support.recordings import analysed, noisy

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


def test_long_names_break_where_their_words_do_and_get_their_letters_back() -> None:
    assert _wrapped("not_equivalent", 13) == ["not_", "equivalent"]
    assert _wrapped("a_b costs $5", 20) == [r"a_b costs \$5"]


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
