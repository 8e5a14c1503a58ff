"""Exits that are rewarded for answering unlike earlier ones (Sun et al. 2021)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from serve.rules.traits import Task

# From an exit's logits and another's to (rows,): the cross-entropy of the exit's probabilities, the
# other's being the target. Values have none, and of a tagger's tokens most are alike.
CROSS_ENTROPIES: dict[Task, Callable[[Tensor, Tensor], Tensor]] = {
    "single_label": lambda logits, other: functional.cross_entropy(
        logits, other.softmax(dim=-1), reduction="none"
    ),
    "multi_label": lambda logits, other: functional.binary_cross_entropy_with_logits(
        logits, other.sigmoid(), reduction="none"
    ).mean(dim=-1),
}


def unlikeness(task: Task, logits: Tensor, earlier: Sequence[Tensor]) -> Tensor:
    """Return the mean over rows of the cross-entropy to the most alike of the earlier exits.

    The paper has no public code, and does not say through which side the gradient flows. Here the
    earlier exits are fixed targets: a later exit is to look elsewhere, and an earlier exit must not
    answer worse only because a later one agrees.

    Args:
        task: one of `CROSS_ENTROPIES`.
        logits: of an exit, (rows, labels).
        earlier: of each exit before it; one or more.
    """
    each = [CROSS_ENTROPIES[task](logits, other.detach()) for other in earlier]
    return torch.stack(each).amin(dim=0).mean()
