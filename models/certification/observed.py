"""Recorded texts with their losses, and where rules let them leave."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.certification.losses import TextLosses
from models.certification.paths import Path
from models.evaluation.bundle_recording import BundleRecording
from serve.policy.ladder import Loss
from serve.rules import Rule
from serve.rules.replay import answers_taken
from serve.rules.traits import Traits


@dataclass(frozen=True)
class Observed:
    """Texts that were run through all exits.

    Attributes:
        recording: what the exits gave.
        losses: what leaving early costs each text.
        traits: of the model with the recorded exits.
    """

    recording: BundleRecording
    losses: TextLosses
    traits: Traits

    def __len__(self) -> int:
        return len(self.recording.num_tokens)

    def of(self, rows: NDArray[np.intp]) -> "Observed":
        """Return some of the texts."""
        return Observed(self.recording.of(rows), self.losses.of(rows), self.traits)


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
    def of(cls, path: Path, observed: Observed) -> "Replay":
        """Try every rule of a path on texts."""
        exits = np.stack([_exits(rule, path, observed) for rule in path.rules])
        return cls(path, exits, observed.losses, observed.traits.exits)

    @property
    def mean_layers(self) -> NDArray[np.float64]:
        """(rules,) layers that texts run in the mean."""
        mean: NDArray[np.float64] = np.array(self.layers)[self.exits].mean(axis=1)
        return mean

    def risks(self, loss: Loss) -> NDArray[np.float64]:
        """Return (rules,) the texts' mean loss."""
        taken: NDArray[np.float64] = self.losses.by_loss[loss][
            self.exits, np.arange(self.exits.shape[1])
        ]
        return taken.mean(axis=1)

    def of_rows(self, rows: NDArray[np.intp]) -> "Replay":
        """Return what the rules make of some of the texts."""
        return Replay(self.path, self.exits[:, rows], self.losses.of(rows), self.layers)


def _exits(rule: Rule, path: Path, observed: Observed) -> NDArray[np.intp]:
    logits, _, counted, uncertainty = observed.recording
    taken = answers_taken(logits, rule, observed.traits, path.temperatures, counted, uncertainty)
    return taken.exits
