"""Training recipes: which parameters learn from which loss, stage by stage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from torch import nn

from models.data.batches import Batch
from models.heads import HeadOutput
from models.multi_exit import MultiExitModel
from models.training.exit_weights import Weigh, all_but_last, by_depth, last_only, summed
from models.training.exits_loss import ExitsLoss, Loss
from models.training.gradient_equilibrium import groups_of, run_in_equilibrium
from models.training.job import FROZEN
from models.training.objective import Objective

# From the model of a run, which is most often a `MultiExitModel`, to what its exits say.
Forward: TypeAlias = Callable[[Any, Batch], Sequence[HeadOutput]]


def run_forward(model: MultiExitModel, batch: Batch) -> list[HeadOutput]:
    """Return the outputs of all exits."""
    return model.exit_outputs(batch.input_ids, batch.attention_mask, batch.token_type_ids)


class Turn(NamedTuple):
    """One kind of training step: how the model is run, and the loss of what its exits say."""

    loss: Loss
    forward: Forward = run_forward


@dataclass(frozen=True)
class Stage:
    """One stage of training.

    Attributes:
        name: for the log.
        modules: the parts of the model that are trained; all others stay frozen.
        turns: the kinds of step, which take turns; most stages have one.
    """

    name: str
    modules: tuple[nn.Module, ...]
    turns: tuple[Turn, ...]

    def turn_at(self, step: int) -> Turn:
        """Return the kind of a step, counted from 0 within the stage."""
        return self.turns[step % len(self.turns)]


# From a model, and what its exits learn, to the stages in order.
Recipe: TypeAlias = Callable[[MultiExitModel, Objective], tuple[Stage, ...]]


def joint(model: MultiExitModel, objective: Objective) -> tuple[Stage, ...]:
    """All parameters at once, exit j weighted by j: PABEE (Zhou et al. 2020)."""
    return (Stage("all exits", (model,), (Turn(_of_all(model, objective, by_depth)),)),)


def two_stage(model: MultiExitModel, objective: Objective) -> tuple[Stage, ...]:
    """Backbone with the last head, then the earlier heads alone: DeeBERT (Xin et al. 2020)."""
    return (_backbone_first(model), _earlier_exits(model, objective))


def mixed(model: MultiExitModel, objective: Objective) -> tuple[Stage, ...]:
    """Backbone with the last head, then all parameters at once: Kubaty et al. 2025."""
    return (_backbone_first(model), *joint(model, objective))


def alternating(model: MultiExitModel, objective: Objective) -> tuple[Stage, ...]:
    """All parameters, by the last loss and the sum of all in turn: BERxiT (Xin et al. 2021)."""
    turns = (Turn(_of_last(model)), Turn(_of_all(model, objective, summed)))
    return (Stage("all exits in turn", (model,), turns),)


def gradient_equilibrium(model: MultiExitModel, objective: Objective) -> tuple[Stage, ...]:
    """Sum of all losses with gradient equilibrium: ElasticBERT (Liu et al. 2022)."""
    turn = Turn(_of_all(model, objective, summed), run_in_equilibrium)
    return (Stage("all exits in equilibrium", (model,), (turn,)),)


def grouped(model: MultiExitModel, objective: Objective) -> tuple[Stage, ...]:
    """Two groups of exits in turn, each in equilibrium: ElasticBERT's pretraining."""
    loss, groups = _of_all(model, objective, summed), groups_of(model.exits)
    turns = tuple(Turn(loss, partial(run_in_equilibrium, exits=group)) for group in groups)
    return (Stage("groups of exits in turn", (model,), turns),)


def frozen(model: MultiExitModel, objective: Objective) -> tuple[Stage, ...]:
    """The earlier heads alone, on a trained classifier and from its answers, not from labels."""
    taught = objective.model_copy(update={"distill": objective.distill or 1.0})
    return (_earlier_exits(model, taught, from_labels=False),)


# A further recipe is a function and a line here.
RECIPES: dict[str, Recipe] = {
    "joint": joint,
    "two-stage": two_stage,
    "mixed": mixed,
    "alternating": alternating,
    "gradient-equilibrium": gradient_equilibrium,
    "grouped": grouped,
    FROZEN: frozen,
}


def freeze_all_but(model: nn.Module, modules: Sequence[nn.Module]) -> list[nn.Parameter]:
    """Make only these modules trainable; return their parameters."""
    model.requires_grad_(False)
    for module in modules:
        module.requires_grad_(True)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _of_all(model: MultiExitModel, objective: Objective, own: Weigh) -> Loss:
    return ExitsLoss(model.exit_config.task, objective.weigh(own), objective)


def _of_last(model: MultiExitModel) -> Loss:
    return ExitsLoss(model.exit_config.task, last_only, Objective())


def _earlier_exits(model: MultiExitModel, objective: Objective, from_labels: bool = True) -> Stage:
    loss = ExitsLoss(model.exit_config.task, all_but_last, objective, from_labels)
    return Stage("earlier exits", tuple(model.heads[:-1]), (Turn(loss),))


def _backbone_first(model: MultiExitModel) -> Stage:
    modules = (model.encoder, model.heads[-1])
    return Stage("backbone and last exit", modules, (Turn(_of_last(model)),))
