"""Gradient equilibrium: every layer learns from the mean of the losses above it.

Without it a layer below many exits gets the sum of their gradients and learns much faster than
a layer near the top ("Improved Techniques for Training Adaptive Deep Networks", Li et al.
2019; also used by ElasticBERT).
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from models.data.batches import Batch
from models.encoders.backbone import Backbone
from models.heads import HeadOutput
from models.multi_exit import MultiExitModel


class _Scaled(torch.autograd.Function):
    """Identity whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx: object, values: Tensor, factor: float) -> Tensor:
        ctx.factor = factor  # type: ignore[attr-defined]
        return values.view_as(values)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None  # type: ignore[attr-defined]


def scaled_gradient(values: Tensor, factor: float) -> Tensor:
    """Return the values unchanged; multiply the gradient that flows back through them."""
    return _Scaled.apply(values, factor)


def states_in_equilibrium(
    backbone: Backbone, exits: Sequence[int], batch: Batch
) -> Iterator[Tensor]:
    """Yield (rows, tokens, width): what the head of each exit reads, first to last.

    With n exits, the head of exit i, counted from 0, passes back 1 / (n - i) of its gradient, and
    the layers after exit i pass back (n - i - 1) / (n - i) of theirs.
    """
    hidden = backbone.embed(batch.input_ids, batch.token_type_ids, batch.attention_mask)
    start = 0
    for index, stop in enumerate(exits):
        above = len(exits) - index
        hidden = backbone.run_layers(hidden, batch.attention_mask, start, stop)
        hidden = scaled_gradient(hidden, 1 / above)
        yield backbone.head_input(hidden)
        hidden = scaled_gradient(hidden, above - 1)
        start = stop


def run_in_equilibrium(model: MultiExitModel, batch: Batch) -> list[HeadOutput]:
    """Return the heads' outputs, as `model.exit_outputs` does."""
    states = states_in_equilibrium(model.backbone, model.exits, batch)
    return [model.head(i).output(state, batch.attention_mask) for i, state in enumerate(states)]
