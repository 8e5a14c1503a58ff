"""What the first exit's confidence goes with."""

from models.evaluation.analysis import Analysis
from models.evaluation.difficulty import difficulty
from models.report.blocks import Text
from models.report.parts.part import Part, missing

TITLE = "What the first exit's confidence tells"


def difficulty_part(analysis: Analysis) -> Part:
    """Return the correlations."""
    observed = analysis.observed
    if observed.answers is None:
        return missing(TITLE, "a regression gives no probabilities")
    if len(observed.traits.exits) < 2:
        return missing(TITLE, "the model has a single exit")
    found = difficulty(observed, observed.answers)
    words = (
        f"Spearman's rank correlation of the first exit's confidence, from -1 to 1: "
        f"{found.with_length:+.2f} with the text's length in tokens; "
        f"{found.with_consistency:+.2f} with the share of later exits that give the first exit's "
        "answer. The second one says whether confidence finds the texts that may leave."
    )
    return Part(TITLE, [Text(words)], found._asdict())
