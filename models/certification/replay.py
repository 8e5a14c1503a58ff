"""Where the rules of a path let recorded texts leave, and what that costs."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from models.certification.losses import TextLosses
from models.certification.paths import Path
from models.quality.recorded import Recorded
from serve.policy.ladder import Loss


@dataclass(frozen=True)
class Replay:
    """What the rules of a path make of texts.

    Attributes:
        path: the rules.
        exits: (rules, rows) where each text leaves, counted from 0.
        losses: of the texts.
        layers: of the exits.
    """

    path: Path
    exits: NDArray[np.intp]
    losses: TextLosses
    layers: tuple[int, ...]

    @classmethod
    def of(cls, path: Path, recorded: Recorded, losses: TextLosses) -> "Replay":
        """Try every rule of a path on texts."""
        recorded = replace(recorded, temperatures=path.temperatures)
        exits = np.stack([recorded.taken(rule).exits for rule in path.rules])
        return cls(path, exits, losses, recorded.traits.exits)

    @property
    def mean_layers(self) -> NDArray[np.float64]:
        """(rules,) layers that texts run in the mean."""
        mean: NDArray[np.float64] = np.array(self.layers)[self.exits].mean(axis=1)
        return mean

    def at_full_depth(self, loss: Loss) -> float:
        """Return the mean loss of full depth, which is 0 but for a reference's."""
        return float(self.losses.by_loss[loss][-1].mean())

    def risks(self, loss: Loss) -> NDArray[np.float64]:
        """Return (rules,) the texts' mean loss."""
        taken: NDArray[np.float64] = self.losses.by_loss[loss][
            self.exits, np.arange(self.exits.shape[1])
        ]
        return taken.mean(axis=1)
