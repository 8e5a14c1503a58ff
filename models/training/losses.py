"""Losses of one exit by task: from labels, and from a teacher exit's logits."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from torch import Tensor
from torch.nn import functional

from models.data.alignment import IGNORED
from serve.rules.traits import Task

# From logits and labels (see `models.data.batches.Batch`) to a scalar.
FromLabels: TypeAlias = Callable[[Tensor, Tensor], Tensor]
# From logits, the teacher's logits and labels to a scalar.
FromTeacher: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]


class TaskLoss(NamedTuple):
    """The losses of one exit.

    Attributes:
        from_labels: cross-entropy; for a regression the squared error.
        from_teacher: divergence from the teacher's probabilities; for a regression the squared
            distance from its value. 0 for the teacher's own logits.
    """

    from_labels: FromLabels
    from_teacher: FromTeacher


def _single_label_distilled(logits: Tensor, teacher: Tensor, _labels: Tensor) -> Tensor:
    return functional.kl_div(
        logits.log_softmax(-1), teacher.log_softmax(-1), reduction="batchmean", log_target=True
    )


def _multi_label_distilled(logits: Tensor, teacher: Tensor, _labels: Tensor) -> Tensor:
    target = teacher.sigmoid()
    minimum = functional.binary_cross_entropy_with_logits(teacher, target)
    return functional.binary_cross_entropy_with_logits(logits, target) - minimum


def _regression(logits: Tensor, values: Tensor) -> Tensor:
    return functional.mse_loss(logits[:, 0], values)


def _regression_distilled(logits: Tensor, teacher: Tensor, _values: Tensor) -> Tensor:
    return functional.mse_loss(logits, teacher)


def _token(logits: Tensor, tags: Tensor) -> Tensor:
    tagged = tags != IGNORED
    # A batch without any tag has loss 0, not the mean of nothing.
    total = functional.cross_entropy(logits[tagged], tags[tagged], reduction="sum")
    return total / tagged.sum().clamp(min=1)


def _token_distilled(logits: Tensor, teacher: Tensor, tags: Tensor) -> Tensor:
    tagged = tags != IGNORED
    log_p, log_q = logits[tagged].log_softmax(-1), teacher[tagged].log_softmax(-1)
    total = functional.kl_div(log_p, log_q, reduction="sum", log_target=True)
    return total / tagged.sum().clamp(min=1)


LOSSES: dict[Task, TaskLoss] = {
    "single_label": TaskLoss(functional.cross_entropy, _single_label_distilled),
    "multi_label": TaskLoss(functional.binary_cross_entropy_with_logits, _multi_label_distilled),
    "regression": TaskLoss(_regression, _regression_distilled),
    "token": TaskLoss(_token, _token_distilled),
}
