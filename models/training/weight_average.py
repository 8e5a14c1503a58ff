"""The mean of a model's weights over a training run.

Late in a run the weights move around a good solution. Their mean is closer to the solution and
generalises better than the last weights ("Averaging Weights Leads to Wider Optima and Better
Generalization", Izmailov et al. 2018).
"""

from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
    """A running mean of snapshots of the parameters.

    Attributes:
        num_snapshots: number of snapshots in the mean.
    """

    def __init__(self) -> None:
        self.num_snapshots = 0
        self._mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Add the model's present parameters to the mean."""
        self.num_snapshots += 1
        for name, parameter in model.named_parameters():
            if name in self._mean:
                self._mean[name].lerp_(parameter, 1 / self.num_snapshots)
            else:
                self._mean[name] = parameter.detach().clone()

    @torch.no_grad()
    def write_to(self, model: nn.Module) -> None:
        """Set the model's parameters to the mean; without snapshots they stay."""
        for name, parameter in model.named_parameters():
            if name in self._mean:
                parameter.copy_(self._mean[name])

    def state(self) -> dict[str, Any]:
        """Return the state for `restore`."""
        return {"num_snapshots": self.num_snapshots, "mean": self._mean}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        self.num_snapshots = state["num_snapshots"]
        self._mean = {name: value.clone() for name, value in state["mean"].items()}
