"""The weights of the best evaluation of a run."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from serve.bundle.calibration import ExitFigures


class BestWeights:
    """Remembers the parameters of the evaluation with the highest score.

    Attributes:
        metric: the name of the figure that tells how good an exit is.
        score: the highest so far, see `score_of`.
    """

    def __init__(self, metric: str = "accuracy") -> None:
        self.metric = metric
        self.score = -math.inf
        self._weights: dict[str, Tensor] = {}

    def offer(self, figures: Sequence[ExitFigures], model: nn.Module) -> bool:
        """Remember the model's parameters if no evaluation before was as good."""
        score = score_of(figures, self.metric)
        if score <= self.score:
            return False
        self.score = score
        self._weights = {n: p.detach().clone() for n, p in model.named_parameters()}
        return True

    @torch.no_grad()
    def write_to(self, model: nn.Module) -> None:
        """Set the model's parameters to the best; without any evaluation they stay."""
        for name, parameter in model.named_parameters():
            if name in self._weights:
                parameter.copy_(self._weights[name])

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs."""
        return {"score": self.score, "weights": self._weights}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state` returned."""
        self.score, self._weights = state["score"], state["weights"]


def score_of(figures: Sequence[ExitFigures], metric: str = "accuracy") -> float:
    """Return the exits' mean metric, exit j weighted by j as in the joint loss."""
    weighted = sum(j * exit_.value(metric) for j, exit_ in enumerate(figures, start=1))
    return weighted / sum(range(1, len(figures) + 1))
