"""How far answers are from another classifier's, the reference."""

from collections.abc import Iterator
from typing import NamedTuple

from models.quality.analysis import Analysis
from models.quality.card import hundredths
from models.quality.costs import LAYERS
from models.quality.points import LADDER, PROFILES, STATIC, Point
from models.quality.reference import ReferenceAnswers
from models.report.markdown import table
from models.report.parts.part import Part
from serve.classifier.score_map import ScoreMap

TITLE = "From the reference"
_WORDS = (
    "Other answers than those of {name}, and how far scores are from its scores of the same "
    "answers, in the mean. Full depth is another model than the reference, so it differs too."
)


class Row(NamedTuple):
    """A rule, and how far its answers are from the reference's; see `difference`."""

    rule: str
    layers: float
    disagreement: float | None
    scores: float | None


def reference_part(analysis: Analysis) -> Part:
    """Return full depth, the profiles and the rungs, compared with the reference."""
    assert analysis.reference
    rows = list(_rows(analysis, analysis.reference))
    words = _WORDS.format(name=analysis.reference.reference.name)
    cells = [
        [
            rule,
            f"{layers:.2f}",
            "-" if share is None else hundredths(share),
            "-" if scores is None else f"{scores:.3f}",
        ]
        for rule, layers, share, scores in rows
    ]
    head = ["rule", "mean layers", "other answer %", "mean difference of scores"]
    figures = {
        "reference": analysis.reference.reference.model_dump(),
        "rules": [row._asdict() for row in rows],
    }
    return Part(TITLE, [words, table(head, cells)], figures)


def from_reference(analysis: Analysis) -> Iterator[str]:
    """Yield in a sentence how far full depth is from the reference, if there is one."""
    if analysis.reference:
        compared = analysis.reference.of_full_depth(analysis.recorded)
        yield f"{analysis.model.name}: {compared}."


def _rows(analysis: Analysis, reference: ReferenceAnswers) -> Iterator[Row]:
    points = analysis.points
    yield _row(analysis, reference, "full depth", points[STATIC][-1])
    for point in points.get(PROFILES, []):
        yield _row(analysis, reference, f"{point.name}: {point.rule.text()}", point)
    for point in points.get(LADDER, [])[1:]:
        yield _row(analysis, reference, point.rule.text(), point)


def _row(analysis: Analysis, reference: ReferenceAnswers, name: str, point: Point) -> Row:
    recorded, ladder = analysis.recorded, analysis.model.ladder
    taken = recorded.taken(point.rule)
    tolerance = ladder.tolerance if ladder else None
    share = reference.difference(recorded, taken.deciding, tolerance).answers
    scores = ScoreMap(ladder.score_temperatures if ladder else None)
    mean = reference.difference(recorded, scores.logits(taken.logits, taken.heads)).scores
    return Row(name, point.costs[LAYERS], share, mean)
