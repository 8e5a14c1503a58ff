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


def test_depth_weighted_loss_is_the_formula_of_pabee() -> None:
    losses = [torch.tensor(6.0), torch.tensor(3.0), torch.tensor(1.0)]
    assert depth_weighted(losses).item() == pytest.approx((1 * 6 + 2 * 3 + 3 * 1) / 6)


def test_joint_recipe_trains_the_whole_model_with_weights_by_depth(make_model: Model) -> None:
    model = make_model()
    (stage,) = RECIPES["joint"](model, 0.0)
    first, second, third = (cross_entropy(z, LABELS) for z in LOGITS)
    expected = (first + 2 * second + 3 * third) / 6
    torch.testing.assert_close(stage.loss_at(0)(LOGITS, LABELS), expected)
    assert stage.modules == (model,)


def test_two_stage_losses_are_the_last_exit_then_the_plain_sum_of_the_others(
    make_model: Model,
) -> None:
    backbone, heads = RECIPES["two-stage"](make_model(), 0.0)
    first, second, third = (cross_entropy(z, LABELS) for z in LOGITS)
    torch.testing.assert_close(backbone.loss_at(0)(LOGITS, LABELS), third)
    torch.testing.assert_close(heads.loss_at(0)(LOGITS, LABELS), first + second)


def test_alternating_recipe_takes_the_last_loss_and_the_sum_of_all_in_turn(
    make_model: Model,
) -> None:
    (stage,) = RECIPES["alternating"](make_model(), 0.0)
    losses = [cross_entropy(z, LABELS) for z in LOGITS]
    for step in range(4):
        expected = sum(losses) if step % 2 else losses[-1]
        torch.testing.assert_close(stage.loss_at(step)(LOGITS, LABELS), expected)


def test_mixed_recipe_is_backbone_first_and_then_joint(make_model: Model) -> None:
    model = make_model()
    first, second = RECIPES["mixed"](model, 0.0)
    assert first.modules == (model.encoder, model.heads[-1])
    torch.testing.assert_close(first.loss_at(0)(LOGITS, LABELS), cross_entropy(LOGITS[2], LABELS))
    (joint,) = RECIPES["joint"](model, 0.0)
    torch.testing.assert_close(second.loss_at(0)(LOGITS, LABELS), joint.loss_at(0)(LOGITS, LABELS))
    assert second.modules == (model,)


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
