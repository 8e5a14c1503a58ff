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
    "single_label": "An answer is right if it is the correct label.",
    "multi_label": "An answer is right if it is the whole set of labels.",
    "token": "An answer is right if it has all entities of the text and no others.",
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
        f"{_RIGHT[observed.traits.task]} {percent(found.overthought, 2)} of the texts have a "
        f"right answer at an earlier exit and a wrong one at full depth; "
        f"{percent(found.rescued, 2)} have a right answer at full depth only. An oracle that let "
        f"each text leave at the first exit that has it right would be right on "
        f"{percent(found.oracle_accuracy, 2)} of the texts "
        f"({percent(found.full_accuracy, 2)} at full depth) with {found.oracle_depth:.2f} mean "
        f"layers of {exits[-1]}."
    )
    picture = Picture(
        f"{slug}-overthinking.svg",
        "What running on from an exit to the end does to the answer.",
        as_svg(draw_overthinking(found, exits)),
    )
    return Part(TITLE, [words, picture], found._asdict())
