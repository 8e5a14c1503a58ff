"""What the first exit's confidence goes with: a text's length, and how the later exits answer."""

from typing import NamedTuple

from models.evaluation.answers import Answers
from models.evaluation.metrics import spearman
from models.evaluation.observation import Observation
from serve.rules import ConfidenceRule


class Difficulty(NamedTuple):
    """Spearman rank correlations of the first exit's confidence, from -1 to 1.

    Attributes:
        with_length: with the text's tokens.
        with_consistency: with the share of later exits that give the first exit's answer.
    """

    with_length: float
    with_consistency: float


def difficulty(observed: Observation, answers: Answers) -> Difficulty:
    """Correlate over the rows.

    Args:
        observed: of a model that gives probabilities, with more than one exit.
        answers: of the same.
    """
    sure = observed.signals(ConfidenceRule(threshold=1.0))[0]
    consistency = (answers.at_exits[1:] == answers.at_exits[0]).mean(axis=0)
    return Difficulty(spearman(sure, observed.num_tokens), spearman(sure, consistency))
