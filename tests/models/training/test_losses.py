"""Losses by task: the formulas, and what counts."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from models.data.alignment import IGNORED
from models.training.losses import LOSSES
from serve.rules.traits import Task

LOGITS = torch.tensor([[1.0, -2.0], [0.5, 3.0]])


def test_each_of_several_labels_is_a_yes_or_no_of_its_own() -> None:
    marks = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    wrongness = [-1.0, -2.0, -0.5, -3.0]
    expected = sum(math.log1p(math.exp(w)) for w in wrongness) / 4
    assert LOSSES["multi_label"].from_labels(LOGITS, marks).item() == pytest.approx(expected)


def test_value_is_learned_by_its_squared_error() -> None:
    logits = torch.tensor([[1.0], [2.0]])
    values = torch.tensor([4.0, 2.5])
    loss = LOSSES["regression"].from_labels(logits, values)
    assert loss.item() == pytest.approx((9 + 0.25) / 2)


def test_tokens_without_a_tag_do_not_count() -> None:
    logits = torch.stack([LOGITS, LOGITS.flip(0)])
    tags = torch.tensor([[IGNORED, 1], [0, IGNORED]])
    expected = cross_entropy(torch.stack([LOGITS[1], LOGITS[1]]), torch.tensor([1, 0]))
    torch.testing.assert_close(LOSSES["token"].from_labels(logits, tags), expected)
    teacher = logits.clone()
    teacher[0, 0] += 5
    teacher[1, 1] -= 5
    teacher[:, :, 0] += 7  # so that shifted logits are seen to be the same probabilities
    teacher[:, :, 1] += 7
    assert LOSSES["token"].from_teacher(logits, teacher, tags).item() == pytest.approx(0, abs=1e-6)


def test_batch_without_any_tag_has_no_loss_rather_than_none_at_all() -> None:
    tags = torch.full((1, 2), IGNORED)
    assert LOSSES["token"].from_labels(LOGITS[None], tags).item() == 0
    assert LOSSES["token"].from_teacher(LOGITS[None], LOGITS[None], tags).item() == 0


TARGETS: dict[Task, torch.Tensor] = {
    "single_label": torch.tensor([0, 1]),
    "multi_label": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
    "regression": torch.tensor([1.0, 2.0]),
    "token": torch.tensor([[0, 1]]),
}


@pytest.mark.parametrize("task", TARGETS)
def test_who_answers_like_the_teacher_has_nothing_to_learn_from_it(task: Task) -> None:
    logits = {"regression": LOGITS[:, :1], "token": LOGITS[None]}.get(task, LOGITS)
    from_teacher = LOSSES[task].from_teacher
    assert from_teacher(logits, logits, TARGETS[task]).item() == pytest.approx(0, abs=1e-6)
    assert from_teacher(logits, logits * 2 + 1, TARGETS[task]).item() > 0.01


def test_divergence_from_a_teacher_is_that_of_its_probabilities() -> None:
    pupil, teacher = torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0]])
    p, q = math.exp(3) / (math.exp(3) + 1), math.e / (math.e + 1)
    by_hand = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    taught = LOSSES["single_label"].from_teacher(pupil, teacher, torch.tensor([0]))
    assert taught.item() == pytest.approx(by_hand, abs=1e-6)
    # Two labels of a softmax and one of a sigmoid are the same thing.
    one = LOSSES["multi_label"].from_teacher(pupil[:, :1], teacher[:, :1], torch.tensor([[1.0]]))
    assert one.item() == pytest.approx(by_hand, abs=1e-6)
