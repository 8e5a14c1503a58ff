"""What every exit learns in pretraining, and which exits learn in which step."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from models.data.alignment import IGNORED
from models.pretraining.model import Found


def sum_of_exits(found: Sequence[Found], order: Tensor) -> Tensor:
    """Return the sum over exits of masked words' and texts' order's cross-entropy.

    Args:
        found: by each exit, in float32.
        order: (rows,) 0, 1 where two texts have changed places, `IGNORED` where there is one.
    """
    losses = [_mean(each.words, each.targets) for each in found]
    losses += [_mean(each.order, order) for each in found if each.order is not None]
    return torch.stack(losses).sum()


def _mean(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy; of nothing it is 0."""
    total = functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    return total / (targets != IGNORED).sum().clamp(min=1)
