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


def run_in_equilibrium(
    model: MultiExitModel, batch: Batch, exits: Sequence[int] | None = None
) -> list[HeadOutput]:
    """Return the outputs of these exits' heads, as `model.exit_outputs` does; None for all."""
    exits = exits or model.exits
    heads = [model.head(model.exits.index(layer)) for layer in exits]
    states = states_in_equilibrium(model.backbone, exits, batch)
    pairs = zip(heads, states, strict=True)
    return [head.output(state, batch.attention_mask) for head, state in pairs]


def groups_of(exits: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return ElasticBERT's two groups: exits at odd places, and at even ones, each with the last.

    One group learns in each step (Liu et al. 2022).
    """
    last = exits[-1]
    groups = (tuple(sorted({*exits[start::2], last})) for start in (0, 1))
    return tuple(dict.fromkeys(groups))
