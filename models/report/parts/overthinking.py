"""Texts that going on spoils."""

from models.evaluation.analysis import Analysis
from models.evaluation.overthinking import overthinking
from models.report.blocks import Picture, Text
from models.report.markdown import percent
from models.report.parts.part import Part, missing
from models.report.pictures.exits import draw_overthinking
from models.report.style import as_svg

TITLE = "Overthinking"
_RIGHT = {
    "single_label": "Right is the correct label.",
    "multi_label": "Right is the whole set of labels.",
    "token": "Right is a text whose entities are all found and no others.",
}


def overthinking_part(analysis: Analysis, slug: str) -> Part:
    """Return how much a rule that knew the answers could do."""
    observed = analysis.observed
    exits = observed.traits.exits
    if observed.answers is None:
        return missing(TITLE, "a regression's values are neither right nor wrong")
    if len(exits) < 2:
        return missing(TITLE, "the model has a single exit")
    found = overthinking(observed.answers, exits)
    words = Text(
        f"{_RIGHT[observed.traits.task]} {percent(found.overthought, 2)} of the texts are right at "
        f"an earlier exit and wrong at full depth; {percent(found.rescued, 2)} are right at full "
        f"depth only. An oracle that let each text leave at the first exit that has it right would "
        f"be right on {percent(found.oracle_accuracy, 2)} of the texts "
        f"({percent(found.full_accuracy, 2)} at full depth) with {found.oracle_depth:.2f} mean "
        f"layers of {exits[-1]}."
    )
    picture = Picture(
        f"{slug}-overthinking.svg",
        "What running on from an exit to the end does to the answer.",
        as_svg(draw_overthinking(found, exits)),
    )
    return Part(TITLE, [words, picture], found._asdict())
