"""How often two exits give the same answer."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.evaluation.metrics import pearson
from models.evaluation.observation import Observation


class ExitAgreement(NamedTuple):
    """Every exit beside every other.

    Attributes:
        exits: layers.
        matrix: (exits, exits) share of texts with the same answer; of a regression the Pearson
            correlation of the values, which are never quite the same.
        measure: `agreement` or `pearson`.
    """

    exits: tuple[int, ...]
    matrix: NDArray[np.float64]
    measure: str


def exit_agreement(observed: Observation) -> ExitAgreement:
    """Compare the answers of all exits."""
    exits = observed.traits.exits
    if observed.answers is not None:
        said = observed.answers.at_exits
        return ExitAgreement(exits, (said[:, None] == said[None]).mean(axis=2), "agreement")
    values = observed.predictions.logits[..., 0]
    matrix = np.array([[pearson(one, other) for other in values] for one in values])
    return ExitAgreement(exits, matrix, "pearson")
