"""Which path to certify: the one that tuning texts promise most of."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.certification.losses import TextLosses
from models.certification.paths import Path
from models.certification.replay import Replay
from models.certification.risk_control import num_certified
from models.quality.recorded import Recorded
from serve.policy.ladder import OF_REFERENCE, Loss

EPSILONS = (0.005, 0.01, 0.02, 0.03, 0.05)
# From a reference: full depth has used up a part, which is seldom nothing and may be much.
REFERENCE_EPSILONS = (
    *(0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3),
)
# A path that is less simple must save so many layers more.
SIMPLER_LAYERS = 0.02
# Every so many rules of a path are tried.
STRIDE = 4


class Terms(NamedTuple):
    """The terms of the certificates.

    Attributes:
        num_certifying: texts that will certify.
        delta: probability that a bound does not hold.
        epsilons: bounds, ascending.
    """

    num_certifying: int
    delta: float
    epsilons: tuple[float, ...] = EPSILONS

    def bounds(self, loss: Loss) -> tuple[float, ...]:
        """Return the bounds of a loss, ascending."""
        return REFERENCE_EPSILONS if loss in OF_REFERENCE else self.epsilons


def choose_path(paths: Sequence[Path], tuning: Recorded, losses: TextLosses, terms: Terms) -> Path:
    """Return the path by which texts are expected to run the fewest layers.

    Args:
        paths: the simplest first.
        tuning: texts that will not certify.
        losses: of the same texts.
        terms: of the certificates.
    """
    best, fewest = paths[0], np.inf
    for path in paths:
        layers = _expected_layers(path, tuning, losses, terms)
        if layers < fewest - SIMPLER_LAYERS:
            best, fewest = path, layers
    return best


def _expected_layers(path: Path, tuning: Recorded, losses: TextLosses, terms: Terms) -> float:
    """Return the mean over the epsilons of what the fastest certified rule would run.

    Certificates about disagreement are expected as if as many texts as will certify had the risks
    of the tuning texts.
    """
    replay = Replay.of(Path(path.rules[::STRIDE], path.temperatures), tuning, losses)
    layers = [tuning.traits.exits[-1], *replay.mean_layers.tolist()]
    risks = replay.risks("disagreement")
    ends = [
        num_certified(risks, terms.num_certifying, epsilon, terms.delta, binary=True)
        for epsilon in terms.epsilons
    ]
    return float(np.mean([layers[end] for end in ends]))
