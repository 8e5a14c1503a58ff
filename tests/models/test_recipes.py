"""Recipes: the published loss formulas, and who learns when."""

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import cross_entropy

from models.encoding import EncodedRow
from models.multi_exit import MultiExitModel
from models.recipes import RECIPES, depth_weighted, from_last_exit
from models.training import TrainConfig, TrainingRun

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
    torch.testing.assert_close(stage.loss(LOGITS, LABELS), expected)
    assert stage.modules == (model,)


def test_two_stage_losses_are_the_last_exit_then_the_plain_sum_of_the_others(
    make_model: Model,
) -> None:
    backbone, heads = RECIPES["two-stage"](make_model(), 0.0)
    first, second, third = (cross_entropy(z, LABELS) for z in LOGITS)
    torch.testing.assert_close(backbone.loss(LOGITS, LABELS), third)
    torch.testing.assert_close(heads.loss(LOGITS, LABELS), first + second)


@pytest.mark.parametrize("recipe", ["joint", "two-stage"])
def test_distillation_adds_the_divergence_from_the_last_exit(
    make_model: Model, recipe: str
) -> None:
    plain = RECIPES[recipe](make_model(), 0.0)[-1].loss(LOGITS, LABELS)
    taught = RECIPES[recipe](make_model(), 0.5)[-1].loss(LOGITS, LABELS)
    first, second, third = from_last_exit(LOGITS)
    added = (first + 2 * second + 3 * third) / 6 if recipe == "joint" else first + second
    torch.testing.assert_close(taught - plain, 0.5 * added)


def test_divergence_from_the_last_exit_teaches_the_others_only() -> None:
    first, _, third = from_last_exit(LOGITS)
    p, q = math.exp(3) / (math.exp(3) + 1), math.e / (math.e + 1)
    by_hand = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    assert first.item() == pytest.approx(by_hand, abs=1e-6)
    assert third.item() == pytest.approx(0, abs=1e-6)
    early, _, late = torch.autograd.grad(sum(from_last_exit(LOGITS)), LOGITS)
    assert early.abs().sum() > 0.1
    assert late.abs().sum() < 1e-6


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
