"""Recipes: the published loss formulas, and who learns when."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import cross_entropy

from models.data.encoding import EncodedRow
from models.multi_exit import MultiExitModel
from models.training.job import TrainConfig
from models.training.losses import LOSSES
from models.training.recipes import RECIPES, depth_weighted
from models.training.training_run import TrainingRun
from serve.rules.traits import Task

Rows = Callable[..., list[EncodedRow]]
Model = Callable[..., MultiExitModel]

LOGITS = [
    torch.tensor([[1.0, 0.0]], requires_grad=True),
    torch.tensor([[0.0, 2.0]], requires_grad=True),
    torch.tensor([[3.0, 0.0]], requires_grad=True),
]
LABELS = torch.tensor([0])


Losses = list[torch.Tensor]


def by_depth(losses: Losses) -> torch.Tensor:
    """PABEE's formula for three exits."""
    return (losses[0] + 2 * losses[1] + 3 * losses[2]) / 6


def last(losses: Losses) -> torch.Tensor:
    return losses[-1]


# By stage: the loss of each of two steps, and whether the whole model is trained.
STAGES: dict[str, list[tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor], bool]]] = {
    "joint": [(by_depth, by_depth, True)],
    "two-stage": [(last, last, False), (lambda x: x[0] + x[1], lambda x: x[0] + x[1], False)],
    "mixed": [(last, last, False), (by_depth, by_depth, True)],
    "alternating": [(last, sum, True)],
    "gradient-equilibrium": [(sum, sum, True)],
}


@pytest.mark.parametrize("recipe", STAGES)
def test_every_stage_has_the_published_loss(make_model: Model, recipe: str) -> None:
    model, losses = make_model(), [cross_entropy(z, LABELS) for z in LOGITS]
    for stage, (even, odd, whole) in zip(RECIPES[recipe](model, 0.0), STAGES[recipe], strict=True):
        for step in range(4):
            expected = (odd if step % 2 else even)(losses)
            torch.testing.assert_close(stage.loss_at(step)(LOGITS, LABELS), expected)
        assert (stage.modules == (model,)) == whole


@pytest.mark.parametrize(
    ("recipe", "combine"),
    [
        ("joint", depth_weighted),
        ("two-stage", lambda losses: sum(losses[:-1])),
        ("mixed", depth_weighted),
        ("alternating", sum),
        ("gradient-equilibrium", sum),
    ],
)
def test_distillation_adds_the_divergence_from_the_last_exit(
    make_model: Model, recipe: str, combine: Callable[[list[torch.Tensor]], torch.Tensor]
) -> None:
    plain = RECIPES[recipe](make_model(), 0.0)[-1].loss_at(1)(LOGITS, LABELS)
    taught = RECIPES[recipe](make_model(), 0.5)[-1].loss_at(1)(LOGITS, LABELS)
    divergence = LOSSES["single_label"].from_teacher
    added = combine([divergence(z, LOGITS[-1], LABELS) for z in LOGITS])
    torch.testing.assert_close(taught - plain, 0.5 * added)


def test_recipe_frozen_learns_the_last_exits_answers_and_no_labels(make_model: Model) -> None:
    (stage,) = RECIPES["frozen"](make_model(), 0.0)
    divergence = LOSSES["single_label"].from_teacher
    expected = sum(divergence(z, LOGITS[-1], LABELS) for z in LOGITS[:-1])
    for labels in (LABELS, 1 - LABELS):
        torch.testing.assert_close(stage.loss_at(0)(LOGITS, labels), expected)


def test_teacher_learns_nothing_from_its_pupils(make_model: Model) -> None:
    (stage,) = RECIPES["joint"](make_model(), 1.0)
    (without,) = RECIPES["joint"](make_model(), 0.0)
    taught = torch.autograd.grad(stage.loss_at(0)(LOGITS, LABELS), LOGITS)
    plain = torch.autograd.grad(without.loss_at(0)(LOGITS, LABELS), LOGITS)
    assert (taught[0] - plain[0]).abs().sum() > 0.01
    torch.testing.assert_close(taught[2], plain[2])


@pytest.mark.parametrize(
    ("task", "labels", "right"),
    [
        ("multi_label", ("a", "b"), torch.tensor([[1.0, 0.0]])),
        ("regression", ("score",), torch.tensor([0.5])),
    ],
)
def test_recipe_learns_by_the_loss_of_the_models_task(
    make_model: Model, task: Task, labels: tuple[str, ...], right: torch.Tensor
) -> None:
    (stage,) = RECIPES["joint"](make_model(task=task, labels=labels), 0.0)
    logits = [z[:, : len(labels)] for z in LOGITS]
    expected = depth_weighted([LOSSES[task].from_labels(z, right) for z in logits])
    torch.testing.assert_close(stage.loss_at(0)(logits, right), expected)


def changed(before: dict[str, torch.Tensor], model: MultiExitModel) -> set[str]:
    return {name for name, value in model.state_dict().items() if not value.equal(before[name])}


def test_two_stage_trains_backbone_and_last_head_then_only_the_earlier_heads(
    make_model: Model, make_rows: Rows
) -> None:
    model = make_model()
    run = TrainingRun(
        model, make_rows(), RECIPES["two-stage"](model, 0.0), TrainConfig(epochs=1, lr=1e-3)
    )
    start = {name: value.clone() for name, value in model.state_dict().items()}
    while run.stage.name == "backbone and last exit":
        run.step()
    first = changed(start, model)
    assert {name.split(".")[0] for name in first} == {"encoder", "heads"}
    assert {name[:8] for name in first if name.startswith("heads")} == {"heads.2."}
    middle = {name: value.clone() for name, value in model.state_dict().items()}
    while not run.finished:
        run.step()
    assert {name[:8] for name in changed(middle, model)} == {"heads.0.", "heads.1."}
