"""Training recipes: which parameters learn from which loss, stage by stage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn

from models.data.batches import Batch
from models.multi_exit import MultiExitModel
from models.training.equilibrium import run_in_equilibrium
from models.training.losses import LOSSES

# The recipe that begins with a classifier instead of an encoder.
FROZEN = "frozen"

Forward: TypeAlias = Callable[[MultiExitModel, Batch], list[Tensor]]


class Loss(Protocol):
    """A scalar from the logits of all exits."""

    def __call__(self, logits: Sequence[Tensor], labels: Tensor) -> Tensor:
        """Return the loss.

        Args:
            logits: (rows, labels) per exit, first to last; of token classification
                (rows, tokens, labels).
            labels: what is right, see `models.data.batches.Batch`.
        """
        ...


def run_plainly(model: MultiExitModel, batch: Batch) -> list[Tensor]:
    """Return the logits of all exits."""
    return model(batch.input_ids, batch.attention_mask, batch.token_type_ids)


@dataclass(frozen=True)
class Stage:
    """One pass of training; what it does not list stays frozen.

    Attributes:
        name: for the log.
        modules: the parts of the model that learn.
        losses: what they learn from, step by step in turn; most stages have one.
        forward: how the model is run.
    """

    name: str
    modules: tuple[nn.Module, ...]
    losses: tuple[Loss, ...]
    forward: Forward = run_plainly

    def loss_at(self, step: int) -> Loss:
        """Return the loss of a step, counted from 0 within the stage."""
        return self.losses[step % len(self.losses)]


class Recipe(Protocol):
    """A training plan for one model. A further recipe is a function and a line in `RECIPES`."""

    def __call__(self, model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
        """Return the stages in order.

        Args:
            model: the model to train.
            distill: weight of learning from the last exit's answers, beside the labels.
        """
        ...


def joint(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """Everything at once, exit j weighted by j: PABEE (Zhou et al. 2020)."""
    return (Stage("all exits", (model,), (_Exits(model, depth_weighted, distill),)),)


def two_stage(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """Backbone with the last head, then the earlier heads alone: DeeBERT (Xin et al. 2020)."""
    return (_backbone_first(model), _earlier_exits(model, distill))


def mixed(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """Backbone with the last head, then everything at once: Kubaty et al. 2025."""
    return (_backbone_first(model), *joint(model, distill))


def alternating(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """Everything, by the last loss and by the sum of all in turn: BERxiT (Xin et al. 2021)."""
    losses = (_Exits(model, last), _Exits(model, summed, distill))
    return (Stage("all exits in turn", (model,), losses),)


def gradient_equilibrium(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """Everything by the sum of all losses, a layer by their mean: ElasticBERT (Liu et al. 2022)."""
    loss = _Exits(model, summed, distill)
    return (Stage("all exits in equilibrium", (model,), (loss,), run_in_equilibrium),)


def frozen(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """The earlier heads alone, on a classifier that is trained already: DeeBERT's second stage."""
    return (_earlier_exits(model, distill),)


RECIPES: dict[str, Recipe] = {
    "joint": joint,
    "two-stage": two_stage,
    "mixed": mixed,
    "alternating": alternating,
    "gradient-equilibrium": gradient_equilibrium,
    FROZEN: frozen,
}


def depth_weighted(losses: Sequence[Tensor]) -> Tensor:
    """Return sum(j * L_j) / sum(j), j counting the exits from 1."""
    stacked = torch.stack(list(losses))
    weights = torch.arange(1, len(losses) + 1, dtype=stacked.dtype, device=stacked.device)
    return (weights * stacked).sum() / weights.sum()


def summed(losses: Sequence[Tensor]) -> Tensor:
    """Return the plain sum."""
    return torch.stack(list(losses)).sum()


def last(losses: Sequence[Tensor]) -> Tensor:
    """Return the last exit's loss alone."""
    return losses[-1]


def freeze_all_but(model: nn.Module, modules: Sequence[nn.Module]) -> list[nn.Parameter]:
    """Let only these modules learn; return their parameters."""
    model.requires_grad_(False)
    for module in modules:
        module.requires_grad_(True)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


class _Exits:
    """The exits' losses as one: from the labels, and weighted, from the last exit's answers."""

    def __init__(
        self,
        model: MultiExitModel,
        combine: Callable[[Sequence[Tensor]], Tensor],
        distill: float = 0.0,
    ) -> None:
        self._of = LOSSES[model.exit_config.task]
        self._combine = combine
        self._distill = distill

    def __call__(self, logits: Sequence[Tensor], labels: Tensor) -> Tensor:
        total = self._combine([self._of.from_labels(z, labels) for z in logits])
        if not self._distill:
            return total
        # The last exit itself learns nothing by being taught.
        teacher = logits[-1].detach()
        taught = [self._of.from_teacher(z, teacher, labels) for z in logits]
        return total + self._distill * self._combine(taught)


def _earlier_exits(model: MultiExitModel, distill: float) -> Stage:
    loss = _Exits(model, lambda losses: summed(losses[:-1]), distill)
    return Stage("earlier exits", tuple(model.heads[:-1]), (loss,))


def _backbone_first(model: MultiExitModel) -> Stage:
    return Stage("backbone and last exit", (model.encoder, model.heads[-1]), (_Exits(model, last),))
