"""The layer norm of the UER toolkit, which FastBERT's encoders use."""

import torch
from torch import Tensor, nn


class UnbiasedNorm(nn.Module):
    """Layer norm by the unbiased standard deviation, with epsilon outside the root.

    Computes weight * (x - mean) / (std + 1e-6) + bias, where std divides by width - 1. Standard
    layer norm divides by width and adds epsilon to the variance. Logits of the two differ
    visibly after twelve layers.
    """

    EPSILON = 1e-6

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (..., width) normalised over the last axis."""
        centred = hidden - hidden.mean(-1, keepdim=True)
        variance = (centred * centred).sum(-1, keepdim=True) / (hidden.shape[-1] - 1)
        return self.weight * (centred / (variance.sqrt() + self.EPSILON)) + self.bias


def replace_norms(encoder: nn.Module) -> None:
    """Replace every layer norm of an encoder by an `UnbiasedNorm`."""
    for module in list(encoder.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.LayerNorm):
                setattr(module, name, UnbiasedNorm(child.normalized_shape[0]))
