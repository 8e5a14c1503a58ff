"""What the first exit's confidence goes with: a text's length, and how the later exits answer."""

import numpy as np
from numpy.typing import NDArray

from models.quality.analysis import Analysis
from models.quality.recorded import Recorded
from models.quality.scores import spearman
from models.report.parts.part import Part, missing
from serve.rules import ConfidenceRule

TITLE = "What the first exit's confidence tells"


def difficulty_part(analysis: Analysis) -> Part:
    """Return Spearman rank correlations of the first exit's confidence, from -1 to 1."""
    recorded = analysis.recorded
    if recorded.answers is None:
        return missing(TITLE, "a regression gives no probabilities")
    if len(analysis.exits) < 2:
        return missing(TITLE, "the model has a single exit")
    found = difficulty(recorded, recorded.answers)
    words = (
        f"Spearman's rank correlation of the first exit's confidence, from -1 to 1: "
        f"{found['with_length']:+.2f} with the text's length in tokens; "
        f"{found['with_consistency']:+.2f} with the share of later exits that give the first "
        "exit's answer. The second one says whether confidence finds the texts that may leave."
    )
    return Part(TITLE, [words], found)


def difficulty(recorded: Recorded, answers: NDArray[np.int64]) -> dict[str, float]:
    """Correlate over the rows."""
    sure = recorded.signals(ConfidenceRule(threshold=1.0))[0]
    consistency = (answers[1:] == answers[0]).mean(axis=0)
    return {
        "with_length": spearman(sure, recorded.num_tokens),
        "with_consistency": spearman(sure, consistency),
    }
