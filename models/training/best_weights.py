"""The weights of the best evaluation of a run."""

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from serve.bundle.calibration import ExitFigures


class BestWeights:
    """Remembers the parameters of the evaluation with the highest score.

    Attributes:
        metric: name of the figure by which exits are compared.
        score: the highest so far, see `score_of`.
    """

    def __init__(self, metric: str = "accuracy") -> None:
        self.metric = metric
        self.score = -math.inf
        self._weights: dict[str, Tensor] | None = None

    def offer(self, figures: Sequence[ExitFigures], model: nn.Module) -> bool:
        """Remember the model's parameters if its score is the highest so far."""
        score = score_of(figures, self.metric)
        if score <= self.score:
            return False
        self.score = score
        self._weights = deepcopy(model.state_dict())
        return True

    def write_to(self, model: nn.Module) -> None:
        """Set the model's parameters to the best; without any evaluation they stay."""
        if self._weights is not None:
            model.load_state_dict(self._weights)

    def state(self) -> dict[str, Any]:
        """Return the state for `restore`."""
        return {"score": self.score, "weights": self._weights}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        self.score = state["score"]
        self._weights = state["weights"]


def score_of(figures: Sequence[ExitFigures], metric: str = "accuracy") -> float:
    """Return the exits' mean metric, exit j weighted by j as in the joint loss."""
    weighted = sum(j * exit_.value(metric) for j, exit_ in enumerate(figures, start=1))
    return weighted / sum(range(1, len(figures) + 1))
