"""Training recipes: which parameters learn from which loss, stage by stage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn

from models.data.batches import Batch
from models.multi_exit import MultiExitModel
from models.training.gradient_equilibrium import run_in_equilibrium
from models.training.job import FROZEN
from models.training.losses import LOSSES
from models.training.teacher import TeacherAnswers

Forward: TypeAlias = Callable[[MultiExitModel, Batch], list[Tensor]]


class Loss(Protocol):
    """A loss of all exits together."""

    def __call__(
        self, logits: Sequence[Tensor], labels: Tensor, teacher: TeacherAnswers | None = None
    ) -> Tensor:
        """Return a scalar.

        Args:
            logits: of all exits, first to last.
            labels: of the batch.
            teacher: another classifier's answers for the batch.
        """
        ...


def run_forward(model: MultiExitModel, batch: Batch) -> list[Tensor]:
    """Return the logits of all exits."""
    return model(batch.input_ids, batch.attention_mask, batch.token_type_ids)


@dataclass(frozen=True)
class Stage:
    """One stage of training.

    Attributes:
        name: for the log.
        modules: the parts of the model that are trained; all others stay frozen.
        losses: the losses, used in turn step by step; most stages have one.
        forward: runs the model.
    """

    name: str
    modules: tuple[nn.Module, ...]
    losses: tuple[Loss, ...]
    forward: Forward = run_forward

    def loss_at(self, step: int) -> Loss:
        """Return the loss of a step, counted from 0 within the stage."""
        return self.losses[step % len(self.losses)]


# From a model, and the weight of learning from the last exit's logits, to the stages in order.
Recipe: TypeAlias = Callable[[MultiExitModel, float], tuple[Stage, ...]]


def joint(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """All parameters at once, exit j weighted by j: PABEE (Zhou et al. 2020)."""
    return (Stage("all exits", (model,), (_ExitsLoss(model, depth_weighted, distill),)),)


def two_stage(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """Backbone with the last head, then the earlier heads alone: DeeBERT (Xin et al. 2020)."""
    return (_backbone_first(model), _earlier_exits(model, distill))


def mixed(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """Backbone with the last head, then all parameters at once: Kubaty et al. 2025."""
    return (_backbone_first(model), *joint(model, distill))


def alternating(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """All parameters, by the last loss and the sum of all in turn: BERxiT (Xin et al. 2021)."""
    losses = (_ExitsLoss(model, last), _ExitsLoss(model, summed, distill))
    return (Stage("all exits in turn", (model,), losses),)


def gradient_equilibrium(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """Sum of all losses with gradient equilibrium: ElasticBERT (Liu et al. 2022)."""
    loss = _ExitsLoss(model, summed, distill)
    return (Stage("all exits in equilibrium", (model,), (loss,), run_in_equilibrium),)


def frozen(model: MultiExitModel, distill: float) -> tuple[Stage, ...]:
    """The earlier heads alone, on a trained classifier and from its answers, not from labels."""
    return (_earlier_exits(model, distill or 1.0, label_weight=0.0),)


# A further recipe is a function and a line here.
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
    """Return the unweighted sum."""
    return torch.stack(list(losses)).sum()


def last(losses: Sequence[Tensor]) -> Tensor:
    """Return the last exit's loss alone."""
    return losses[-1]


def freeze_all_but(model: nn.Module, modules: Sequence[nn.Module]) -> list[nn.Parameter]:
    """Make only these modules trainable; return their parameters."""
    model.requires_grad_(False)
    for module in modules:
        module.requires_grad_(True)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


class _ExitsLoss:
    """The combined loss of all exits: from labels, a teacher and the last exit, if asked for."""

    def __init__(
        self,
        model: MultiExitModel,
        combine: Callable[[Sequence[Tensor]], Tensor],
        distill: float = 0.0,
        label_weight: float = 1.0,
    ) -> None:
        self._task_loss = LOSSES[model.exit_config.task]
        self._combine = combine
        self._distill = distill
        self._label_weight = label_weight

    def __call__(
        self, logits: Sequence[Tensor], labels: Tensor, teacher: TeacherAnswers | None = None
    ) -> Tensor:
        from_labels, from_teacher = self._task_loss
        losses = [self._label_weight * from_labels(z, labels) for z in logits]
        if teacher:
            taught = [teacher.loss(from_teacher, z, labels) for z in logits]
            losses = [a + b for a, b in zip(losses, taught, strict=True)]
        total = self._combine(losses)
        if not self._distill:
            return total
        # Detached: the last exit must not learn from the earlier ones.
        last_exit = logits[-1].detach()
        distilled = [from_teacher(z, last_exit, labels) for z in logits]
        return total + self._distill * self._combine(distilled)


def _earlier_exits(model: MultiExitModel, distill: float, label_weight: float = 1.0) -> Stage:
    loss = _ExitsLoss(model, lambda losses: summed(losses[:-1]), distill, label_weight)
    return Stage("earlier exits", tuple(model.heads[:-1]), (loss,))


def _backbone_first(model: MultiExitModel) -> Stage:
    return Stage(
        "backbone and last exit", (model.encoder, model.heads[-1]), (_ExitsLoss(model, last),)
    )
