"""Random weights under any names, spread enough that exits differ."""

import torch
from torch import Tensor

State = dict[str, Tensor]


class Draw:
    """Draws weights in the order in which they are asked for."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.state: State = {}

    def table(self, name: str, *shape: int, spread: float = 0.5) -> None:
        self.state[name] = torch.randn(shape, generator=self.generator) * spread

    def linear(self, name: str, width_in: int, width_out: int, spread: float = 1.0) -> None:
        self.table(f"{name}.weight", width_out, width_in, spread=spread / width_in**0.5)
        self.table(f"{name}.bias", width_out, spread=0.1)

    def norm(self, name: str, width: int, gain: str = "weight", shift: str = "bias") -> None:
        self.state[f"{name}.{gain}"] = 1 + 0.2 * torch.randn(width, generator=self.generator)
        self.table(f"{name}.{shift}", width, spread=0.1)
