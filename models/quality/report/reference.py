"""How far answers are from another classifier's, the reference."""

from models.quality.analysis import Analysis
from models.quality.card import hundredths
from models.quality.costs import LAYERS
from models.quality.page import Part, table
from models.quality.points import LADDER, PROFILES
from models.quality.reference import ReferenceAnswers
from serve.classifier.score_map import ScoreMap

TITLE = "From the reference"
_WORDS = (
    "Other answers than those of {name}, and how far scores are from its scores of the same "
    "answers, in the mean. Full depth is another model than the reference, so it differs too."
)


def reference_part(analysis: Analysis, reference: ReferenceAnswers) -> Part:
    """Return full depth, the profiles and the rungs, compared with the reference."""
    recorded, ladder, points = analysis.recorded, analysis.model.ladder, analysis.points
    named = [("full depth", analysis.full)]
    named += [(f"{p.name}: {p.rule.text()}", p) for p in points.get(PROFILES, [])]
    named += [(p.rule.text(), p) for p in points.get(LADDER, [])[1:]]
    shown = ScoreMap(ladder.score_temperatures if ladder else None)
    cells, figures = [], []
    for name, point in named:
        taken, layers = recorded.taken(point.rule), point.costs[LAYERS]
        tolerance = ladder.tolerance if ladder else None
        share = reference.difference(recorded, taken.deciding, tolerance).answers
        scores = reference.difference(recorded, shown.logits(taken.logits, taken.heads)).scores
        other = "-" if share is None else hundredths(share)
        cells.append([name, f"{layers:.2f}", other, "-" if scores is None else f"{scores:.3f}"])
        figures.append({"rule": name, "layers": layers, "disagreement": share, "scores": scores})
    head = ["rule", "mean layers", "other answer %", "mean difference of scores"]
    which = reference.reference
    return Part(
        TITLE,
        [_WORDS.format(name=which.name), table(head, cells)],
        {"reference": which.model_dump(), "rules": figures},
    )
