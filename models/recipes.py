"""Training recipes: which parameters learn from which loss, stage by stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.multi_exit import MultiExitModel


class Loss(Protocol):
    """A scalar from the logits of all exits."""

    def __call__(self, logits: Sequence[Tensor], labels: Tensor) -> Tensor:
        """Return the loss.

        Args:
            logits: (rows, labels) per exit, first to last.
            labels: (rows,) label ids.
        """
        ...


@dataclass(frozen=True)
class Stage:
    """One pass of training; what it does not list stays frozen.

    Attributes:
        name: for the log.
        modules: the parts of the model that learn.
        loss: what they learn from.
    """

    name: str
    modules: tuple[nn.Module, ...]
    loss: Loss


class Recipe(Protocol):
    """A training plan for one model. A further recipe is a function and a line in `RECIPES`."""

    def __call__(self, model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
        """Return the stages in order.

        Args:
            model: the model to train.
            distill: weight of learning from the last exit's probabilities, beside the labels.
        """
        ...


def joint(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """Everything at once, exit j weighted by j: PABEE (Zhou et al. 2020)."""

    def loss(logits: Sequence[Tensor], labels: Tensor) -> Tensor:
        total = depth_weighted([functional.cross_entropy(z, labels) for z in logits])
        return total + distill * depth_weighted(from_last_exit(logits)) if distill else total

    return (Stage("all exits", (model,), loss),)


def two_stage(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """Backbone with the last head, then the earlier heads alone: DeeBERT (Xin et al. 2020)."""

    def last(logits: Sequence[Tensor], labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits[-1], labels)

    def earlier(logits: Sequence[Tensor], labels: Tensor) -> Tensor:
        total = torch.stack([functional.cross_entropy(z, labels) for z in logits[:-1]]).sum()
        return total + distill * torch.stack(from_last_exit(logits)[:-1]).sum()

    *early_heads, last_head = model.heads
    return (
        Stage("backbone and last exit", (model.encoder, last_head), last),
        Stage("earlier exits", tuple(early_heads), earlier),
    )


RECIPES: dict[str, Recipe] = {"joint": joint, "two-stage": two_stage}


def depth_weighted(losses: Sequence[Tensor]) -> Tensor:
    """Return sum(j * L_j) / sum(j), j counting the exits from 1."""
    stacked = torch.stack(list(losses))
    weights = torch.arange(1, len(losses) + 1, dtype=stacked.dtype, device=stacked.device)
    return (weights * stacked).sum() / weights.sum()


def from_last_exit(logits: Sequence[Tensor]) -> list[Tensor]:
    """Return each exit's KL divergence from the last exit, which itself learns nothing by it."""
    teacher = logits[-1].detach().log_softmax(-1)
    return [
        functional.kl_div(z.log_softmax(-1), teacher, reduction="batchmean", log_target=True)
        for z in logits
    ]


def freeze_all_but(model: nn.Module, modules: Sequence[nn.Module]) -> list[nn.Parameter]:
    """Let only these modules learn; return their parameters."""
    model.requires_grad_(False)
    for module in modules:
        module.requires_grad_(True)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
