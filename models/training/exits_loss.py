"""The loss of all exits together: what each exit learns, and how much it counts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from models.heads import HeadOutput
from models.training.diversity import unlikeness
from models.training.error_targets import ERROR_TARGETS
from models.training.exit_weights import Weigh
from models.training.losses import LOSSES
from models.training.objective import Objective
from models.training.teacher import TeacherAnswers
from serve.rules.traits import Task


class Said(NamedTuple):
    """What the exits said of a batch, and what they should have said.

    Attributes:
        outputs: of the exits that were run, first to last, in float32.
        labels: of the batch, see `models.data.batches.Batch`.
        teacher: another classifier's answers for the batch.
        done: share of the stage's steps that came before this one.
    """

    outputs: Sequence[HeadOutput]
    labels: Tensor
    teacher: TeacherAnswers | None = None
    done: float = 0.0


class Loss(Protocol):
    """A loss of all exits together."""

    def __call__(self, said: Said) -> Tensor:
        """Return a scalar."""
        ...


class ExitsLoss:
    """The weighted sum of the exits' losses, each of which is a sum of parts."""

    def __init__(
        self, task: Task, weigh: Weigh, objective: Objective, from_labels: bool = True
    ) -> None:
        """Take what the exits learn; `from_labels` tells whether they learn from labels."""
        self._task, self._task_loss = task, LOSSES[task]
        self._weigh = weigh
        self._objective = objective
        self._from_labels = from_labels

    def __call__(self, said: Said) -> Tensor:
        """Return a scalar; exits whose weight is 0 are left out."""
        weights = enumerate(self._weigh(len(said.outputs), said.done))
        parts = [weight * part for i, weight in weights if weight for part in self._parts(said, i)]
        return torch.stack(parts).sum()

    def _parts(self, said: Said, index: int) -> Iterator[Tensor]:
        """Yield the parts of one exit's loss."""
        (logits, estimate), before_last = said.outputs[index], index < len(said.outputs) - 1
        if self._from_labels:
            yield self._task_loss.from_labels(logits, said.labels)
        if said.teacher:
            yield said.teacher.loss(self._task_loss.from_teacher, logits, said.labels)
        if self._objective.distill and before_last:
            # Detached: the last exit must not learn from the earlier ones.
            last = said.outputs[-1].logits.detach()
            yield self._objective.distill * self._task_loss.from_teacher(logits, last, said.labels)
        if self._objective.learn_error and before_last:
            assert estimate is not None
            # Detached: the exit must not err as it had estimated. The estimate's input is not.
            yield functional.mse_loss(estimate, self._error(logits.detach(), said))
        if self._objective.diversity and index:
            earlier = [output.logits for output in said.outputs[:index]]
            yield -self._objective.diversity * unlikeness(self._task, logits, earlier)

    def _error(self, logits: Tensor, said: Said) -> Tensor:
        answers, error = ERROR_TARGETS[self._task]
        unlabelled = self._objective.unlabelled and not said.teacher  # whose answers are labels
        gold = answers(said.outputs[-1].logits.detach()) if unlabelled else said.labels
        return error(answers(logits), gold)
