"""Pages as Markdown and as one HTML file."""

import re
from dataclasses import replace

import numpy as np
import pytest

from models.evaluation.analysis import Analysis
from models.evaluation.costs import LAYERS, MS
from models.evaluation.rule_families import rule_families
from models.profiles import PROFILES
from models.report.blocks import Facts, Picture, Section, Table, Text
from models.report.html import html_page
from models.report.markdown import markdown_page, numeric
from models.report.parts.certificates import terms
from models.report.pictures.examples import _wrapped
from models.report.rule_text import rule_text
from models.report.style import COLOURS
from serve.rules import ConfidenceRule, EntropyRule, LayerRule, NeverRule, PatienceRule, Rule
from serve.rules.traits import Traits
from tests.support.observations import noisy, observed

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


def test_long_names_break_where_their_words_do_and_get_their_letters_back() -> None:
    assert _wrapped("not_equivalent", 13) == ["not_", "equivalent"]
    assert _wrapped("a_b costs $5", 20) == [r"a_b costs \$5"]


def test_there_is_a_colour_for_every_family_of_rules() -> None:
    predictions = noisy("single_label")
    learned = Traits(predictions.exits, predictions.traits.labels, learned=True)
    errors = np.random.default_rng(0).random((3, 60), np.float32)
    seen = observed(predictions._replace(uncertainty=errors, traits=learned))
    assert len(rule_families(seen)) <= len(set(COLOURS))


def test_profiles_that_need_a_certificate_say_that_there_is_none() -> None:
    seen = observed(noisy("single_label"), profiles=PROFILES)
    assert terms(Analysis.of(seen)) == []
    layers = seen.costs[LAYERS]
    found = terms(Analysis.of(replace(seen, costs={LAYERS: layers, MS: layers})))
    assert "Nothing is certified for this variant" in found[0].text
