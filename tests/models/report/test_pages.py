"""Pages as Markdown and as one HTML file."""

import re

import pytest

from models.report.blocks import Facts, Picture, Section, Table, Text
from models.report.html import html_page
from models.report.markdown import markdown_page, numeric
from models.report.rule_text import rule_text
from serve.rules import ConfidenceRule, EntropyRule, LayerRule, NeverRule, PatienceRule, Rule

PAGE = [
    Section(
        "A <b>page</b>",
        1,
        [
            Facts({"rows": "872"}),
            Text("So `a < b` & **more**."),
            Table(("name", "%"), [["x | y", "+1.50"], ["z", "-"]]),
            Picture("p.svg", "A picture", b"<svg/>"),
        ],
    )
]


def test_html_holds_its_pictures_and_escapes_what_it_shows() -> None:
    html = html_page(PAGE)
    assert "<h1>A &lt;b&gt;page&lt;/b&gt;</h1>" in html
    assert "<code>a &lt; b</code> &amp; <strong>more</strong>" in html
    assert '<td>x | y</td><td class="number">+1.50</td>' in html
    assert 'src="data:image/svg+xml;base64,PHN2Zy8+"' in html
    # Nothing is fetched.
    assert set(re.findall(r'(?:src|href)="([a-z]+):', html)) == {"data"}
    assert "http" not in html
    assert "<script" not in html


def test_markdown_refers_to_its_pictures_by_their_names() -> None:
    words = markdown_page(PAGE)
    assert "* rows: 872" in words
    assert "| name | % |\n| --- | ---: |\n| x \\| y | +1.50 |" in words
    assert "![A picture](p.svg)" in words


def test_columns_of_numbers_are_told_from_words() -> None:
    rows = [[1.5, "-0.20", "1 to 2", None], [2, "-", "3", "7"]]
    assert [numeric(rows, place) for place in range(4)] == [True, True, False, True]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (EntropyRule(threshold=0.123456), "entropy < 0.123"),
        (EntropyRule(threshold=0.5, min_layer=2), "entropy < 0.5 from layer 2"),
        (ConfidenceRule(threshold=(0.5, 1.0)), "confidence >= (0.5, 1)"),
        (ConfidenceRule(threshold=0.9743), "confidence >= 0.9743"),
        (ConfidenceRule(threshold=0.99999366), "confidence >= 0.99999366"),
        (PatienceRule(patience=2, tolerance=0.5), "patience 2 tolerance 0.5"),
        (LayerRule(layer=3), "layer 3"),
        (NeverRule(), "never"),
    ],
)  # fmt: skip
def test_rules_are_written_in_a_few_words(rule: Rule, words: str) -> None:
    assert rule_text(rule) == words
