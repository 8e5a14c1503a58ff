"""Recipes: the published loss formulas, and who learns when."""

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import cross_entropy

from models.data.encoding import EncodedRow
from models.heads import HeadOutput
from models.multi_exit import MultiExitModel
from models.training.exit_weights import EXIT_WEIGHTS, ExitWeights
from models.training.exits_loss import Said
from models.training.job import TrainConfig
from models.training.losses import LOSSES
from models.training.objective import Objective
from models.training.recipes import RECIPES, Stage
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


def loss_of(
    stage: Stage,
    step: int = 0,
    logits: Losses = LOGITS,
    labels: torch.Tensor = LABELS,
    done: float = 0.0,
) -> torch.Tensor:
    outputs = [HeadOutput(z) for z in logits]
    return stage.turn_at(step).loss(Said(outputs, labels, done=done))


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
    # Of the exits of a group, which are all that the step runs.
    "grouped": [(sum, sum, True)],
}


@pytest.mark.parametrize("recipe", STAGES)
def test_every_stage_has_the_published_loss(make_model: Model, recipe: str) -> None:
    model, losses = make_model(), [cross_entropy(z, LABELS) for z in LOGITS]
    stages = RECIPES[recipe](model, Objective())
    for stage, (even, odd, whole) in zip(stages, STAGES[recipe], strict=True):
        for step in range(4):
            expected = (odd if step % 2 else even)(losses)
            torch.testing.assert_close(loss_of(stage, step), expected)
        assert (stage.modules == (model,)) == whole


@pytest.mark.parametrize("recipe", STAGES)
def test_distillation_adds_the_divergence_from_the_last_exit(
    make_model: Model, recipe: str
) -> None:
    _, combine, _ = STAGES[recipe][-1]  # at an odd step
    plain = loss_of(RECIPES[recipe](make_model(), Objective())[-1], 1)
    taught = loss_of(RECIPES[recipe](make_model(), Objective(distill=0.5))[-1], 1)
    divergence = LOSSES["single_label"].from_teacher
    added = combine([divergence(z, LOGITS[-1], LABELS) for z in LOGITS])
    torch.testing.assert_close(taught - plain, 0.5 * added)


@pytest.mark.parametrize(
    ("chosen", "done", "weights"),
    [
        ("depth", 0.3, [1 / 6, 2 / 6, 3 / 6]),
        ("sum", 0.3, [1, 1, 1]),
        ("mean", 0.3, [1 / 3, 1 / 3, 1 / 3]),
        ("descending", 0.3, [3 / 6, 2 / 6, 1 / 6]),
        ("shallow-deep", 0.0, [0.01, 0.01, 1]),
        ("shallow-deep", 0.5, [0.01 + 0.225, 0.01 + 0.45, 1]),
        ("shallow-deep", 0.999, [0.45, 0.9, 1]),
    ],
)
@pytest.mark.parametrize(
    "recipe", ["joint", "mixed", "alternating", "gradient-equilibrium", "grouped"]
)
def test_exits_count_as_the_chosen_weights_say(
    make_model: Model, recipe: str, chosen: ExitWeights, done: float, weights: list[float]
) -> None:
    stage = RECIPES[recipe](make_model(), Objective(exit_weights=chosen))[-1]
    expected = sum(w * cross_entropy(z, LABELS) for w, z in zip(weights, LOGITS, strict=True))
    torch.testing.assert_close(loss_of(stage, 1, done=done), expected)


def test_shallow_deep_weights_of_six_inner_exits_end_as_published() -> None:
    expected = [0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1]
    assert EXIT_WEIGHTS["shallow-deep"](7, 1.0) == pytest.approx(expected)
    assert EXIT_WEIGHTS["shallow-deep"](1, 0.5) == [1]


def test_recipe_frozen_learns_the_last_exits_answers_and_no_labels(make_model: Model) -> None:
    (stage,) = RECIPES["frozen"](make_model(), Objective())
    divergence = LOSSES["single_label"].from_teacher
    expected = sum(divergence(z, LOGITS[-1], LABELS) for z in LOGITS[:-1])
    for labels in (LABELS, 1 - LABELS):
        torch.testing.assert_close(loss_of(stage, labels=labels), expected)


def test_teacher_learns_nothing_from_its_pupils(make_model: Model) -> None:
    (stage,) = RECIPES["joint"](make_model(), Objective(distill=1.0))
    (without,) = RECIPES["joint"](make_model(), Objective())
    taught = torch.autograd.grad(loss_of(stage), LOGITS)
    plain = torch.autograd.grad(loss_of(without), LOGITS)
    assert (taught[0] - plain[0]).abs().sum() > 0.01
    torch.testing.assert_close(taught[2], plain[2])


ESTIMATES = [torch.tensor([0.2, 0.7]), torch.tensor([0.4, 0.1]), torch.tensor([0.5, 0.5])]
# Two texts, three exits: right and wrong, right and right, wrong and right.
SAID: dict[Task, tuple[Losses, torch.Tensor, Losses]] = {
    "single_label": (
        [torch.tensor(z) for z in ([[1.0, 0], [1, 0]], [[2.0, 0], [0, 1]], [[0.0, 1], [0, 3]])],
        torch.tensor([0, 1]),
        [torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])],
    ),
    "multi_label": (
        [torch.tensor(z) for z in ([[1.0, -1], [1, 1]], [[2.0, -2], [-1, 1]], [[1.0, 1], [-1, 3]])],
        torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        [torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])],
    ),
    "regression": (
        [torch.tensor(z) for z in ([[2.0], [1.0]], [[1.5], [3.0]], [[0.0], [2.0]])],
        torch.tensor([2.0, 3.0]),
        [torch.tanh(torch.tensor(d)) for d in ([0.0, 2.0], [0.5, 0.0], [2.0, 1.0])],
    ),
}


@pytest.mark.parametrize("task", SAID)
@pytest.mark.parametrize(
    ("recipe", "weights"), [("joint", (1 / 6, 2 / 6)), ("alternating", (1, 1)), ("frozen", (1, 1))]
)
def test_every_exit_before_the_last_learns_its_own_error_by_its_square(
    make_model: Model, task: Task, recipe: str, weights: tuple[float, float]
) -> None:
    logits, labels, errors = SAID[task]
    logits = [z.requires_grad_() for z in logits]
    estimates = [estimate.clone().requires_grad_() for estimate in ESTIMATES]
    outputs = [HeadOutput(z, e) for z, e in zip(logits, estimates, strict=True)]
    names = ("a", "b")[: logits[0].shape[1]]
    learning, plain = (
        RECIPES[recipe](make_model(task=task, labels=names), Objective(learn_error=learns))[-1]
        for learns in (True, False)
    )
    expected = 0.0
    for weight, estimate, error in zip(weights, ESTIMATES[:-1], errors[:-1], strict=True):
        expected += weight * ((estimate - error) ** 2).sum() / 2
    said = Said(outputs, labels)
    added = learning.turn_at(1).loss(said) - plain.turn_at(1).loss(said)
    torch.testing.assert_close(added, expected)
    gradients = torch.autograd.grad(added, [*logits, *estimates[:2]], materialize_grads=True)
    assert max(g.abs().max() for g in gradients[:3]) < 1e-6, "exits do not err as they estimated"
    assert all(g.any() for g in gradients[3:])
    if recipe == "alternating":
        torch.testing.assert_close(learning.turn_at(0).loss(said), plain.turn_at(0).loss(said))


def test_without_labels_an_exits_error_is_to_differ_from_the_last_exit(make_model: Model) -> None:
    logits, _, _ = SAID["single_label"]
    outputs = [HeadOutput(z, e) for z, e in zip(logits, ESTIMATES, strict=True)]
    objective = Objective(learn_error=True, unlabelled=True)
    (learning,) = RECIPES["frozen"](make_model(), objective)
    (plain,) = RECIPES["frozen"](make_model(), Objective())
    said = Said(outputs, torch.tensor([-7, -7]))
    added = learning.turn_at(0).loss(said) - plain.turn_at(0).loss(said)
    differs = [torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0])]
    pairs = zip(ESTIMATES, differs, strict=False)
    torch.testing.assert_close(added, sum(((e - d) ** 2).mean() for e, d in pairs))


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_diversity_rewards_each_text_by_the_most_alike_of_the_earlier_exits(
    make_model: Model, task: Task
) -> None:
    logits, labels, _ = SAID[task]
    logits = [z.clone().requires_grad_() for z in logits]
    (diverse,), (plain,) = (
        RECIPES["gradient-equilibrium"](make_model(task=task), Objective(diversity=weight))
        for weight in (0.3, 0.0)
    )
    added = loss_of(diverse, 0, logits, labels) - loss_of(plain, 0, logits, labels)
    expected = 0.0
    for i in (1, 2):
        for row in range(2):
            nearest = float("inf")
            for j in range(i):
                x, y = logits[i][row].tolist(), logits[j][row].tolist()
                nearest = min(nearest, crossed(x, y, task))
            expected -= 0.3 * nearest / 2
    assert added.item() == pytest.approx(expected, abs=1e-5)
    assert not torch.autograd.grad(added, logits[0])[0].abs().max() > 1e-6, "it is a target only"


def crossed(x: list[float], target: list[float], task: Task) -> float:
    """Return the cross-entropy of x's probabilities, in plain arithmetic."""
    if task == "single_label":
        p, q = ([math.exp(a) / sum(map(math.exp, z)) for a in z] for z in (target, x))
        return -sum(a * math.log(b) for a, b in zip(p, q, strict=True))
    p, q = ([1 / (1 + math.exp(-a)) for a in z] for z in (target, x))
    each = (a * math.log(b) + (1 - a) * math.log(1 - b) for a, b in zip(p, q, strict=True))
    return -sum(each) / len(x)


def changed(before: dict[str, torch.Tensor], model: MultiExitModel) -> set[str]:
    return {name for name, value in model.state_dict().items() if not value.equal(before[name])}


def test_two_stage_trains_backbone_and_last_head_then_only_the_earlier_heads(
    make_model: Model, make_rows: Rows
) -> None:
    model = make_model()
    stages = RECIPES["two-stage"](model, Objective())
    run = TrainingRun(model, make_rows(), stages, TrainConfig(epochs=1, lr=1e-3))
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
