"""Floating-point operations by exit, as PyTorch's own counter finds them.

Two conventions are in use, and figures only compare within one:

* `mflops`, of the ELUE benchmark: two operations for each multiply-accumulate, attention included;
  softmax and layer norm count two multiply-accumulates an element; embeddings, activations and
  additions count nothing.
* `mflops_linear`, as `thop` counts, with which FastBERT was published: linear layers alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from models.evaluation.costs import MFLOPS, MFLOPS_LINEAR, RowCost
from models.multi_exit import MultiExitModel

_ATEN = torch.ops.aten
_LINEAR = {_ATEN.mm, _ATEN.addmm, _ATEN.convolution}
_ELEMENTWISE = (_ATEN._softmax, _ATEN._safe_softmax, _ATEN.native_layer_norm)


def num_parameters(model: MultiExitModel) -> int:
    """Return how many numbers the model has learned; those that layers share count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def flops_by_exit(
    model: MultiExitModel, num_tokens: NDArray[np.intp], exits: tuple[int, ...] | None = None
) -> dict[str, RowCost]:
    """Return the operations, in units of 10^6, that each row takes to each exit.

    The counter runs three lengths. Attention is quadratic in the tokens and all else linear, so
    that these three give every other length exactly.

    Args:
        model: any.
        num_tokens: (rows,).
        exits: layers of the exits that are in use; None for all.
    """
    kept = [model.exits.index(layer) for layer in exits or model.exits]
    shortest, longest = int(num_tokens.min()), int(num_tokens.max())
    lengths = np.unique([shortest, (shortest + longest) // 2, longest])
    counted = np.stack([_counted(model, int(length)) for length in lengths])
    powers = np.vander(lengths.astype(np.float64), increasing=True)
    coefficients = np.linalg.solve(powers, counted.reshape(len(lengths), -1))
    rows = np.vander(num_tokens.astype(np.float64), len(lengths), increasing=True)
    by_row = (rows @ coefficients).reshape(len(rows), *counted.shape[1:])
    whole, linear = np.moveaxis(by_row, 0, -1)[:, :, kept]  # each (2, exits, rows)
    return {MFLOPS: RowCost(*whole), MFLOPS_LINEAR: RowCost(*linear)}


def _counted(model: MultiExitModel, length: int) -> NDArray[np.float64]:
    """Return (conventions, 2, exits): running to each exit, and its head, for one text."""
    ids = torch.full((1, length), 2)
    mask, types = torch.ones_like(ids), torch.zeros_like(ids)
    run, asked = [], []
    with _counting() as counter:
        hidden = model.backbone.embed(ids, types, mask)
        start = 0
        for index, stop in enumerate(model.exits):
            hidden = model.run_layers(hidden, mask, start, stop)
            run.append(_totals(counter))
            model.head(index).output(model.backbone.head_input(hidden), mask)
            asked.append(_totals(counter))
            start = stop
    heads = np.array(asked) - np.array(run)  # (exits, conventions)
    to_exits = np.array(run) - (heads.cumsum(axis=0) - heads)
    return np.stack([to_exits.T, heads.T], axis=1) / 1e6


@contextmanager
def _counting() -> Iterator[FlopCounterMode]:
    rules = dict.fromkeys(_ELEMENTWISE, _four_per_element)
    counter = FlopCounterMode(display=False, custom_mapping=rules)
    # Plain matrix products, which the counter knows; it does not know the CPU's fused attention.
    # Not inference mode, in which the counter cannot follow weights that are passed to a module.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        yield counter


def _totals(counter: FlopCounterMode) -> list[int]:
    """Return the operations so far by both conventions."""
    by_operator = counter.get_flop_counts().get("Global", {})
    linear = sum(count for operator, count in by_operator.items() if operator in _LINEAR)
    return [sum(by_operator.values()), linear]


def _four_per_element(shape: torch.Size, *_: Any, **__: Any) -> int:
    return 4 * shape.numel()
