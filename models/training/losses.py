"""What an exit learns from: the right answers, and the answers of a better exit, by task."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from torch import Tensor
from torch.nn import functional

from models.data.alignment import IGNORED
from serve.rules.traits import Task

# Logits and what is right, as in `models.data.batches.Batch`, to a scalar.
FromLabels: TypeAlias = Callable[[Tensor, Tensor], Tensor]
# Logits, the teacher's logits, and what is right, to a scalar.
FromTeacher: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]


class TaskLoss(NamedTuple):
    """One exit's losses.

    Attributes:
        from_labels: cross-entropy, or the squared error of a value.
        from_teacher: the divergence from a teacher's probabilities, or the squared distance
            from its value; 0 for the teacher's own logits.
    """

    from_labels: FromLabels
    from_teacher: FromTeacher


def _single_label(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels)


def _single_label_taught(logits: Tensor, teacher: Tensor, _labels: Tensor) -> Tensor:
    return functional.kl_div(
        logits.log_softmax(-1), teacher.log_softmax(-1), reduction="batchmean", log_target=True
    )


def _multi_label(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, labels)


def _multi_label_taught(logits: Tensor, teacher: Tensor, _labels: Tensor) -> Tensor:
    wanted = teacher.sigmoid()
    least = functional.binary_cross_entropy_with_logits(teacher, wanted)
    return functional.binary_cross_entropy_with_logits(logits, wanted) - least


def _regression(logits: Tensor, values: Tensor) -> Tensor:
    return functional.mse_loss(logits[:, 0], values)


def _regression_taught(logits: Tensor, teacher: Tensor, _values: Tensor) -> Tensor:
    return functional.mse_loss(logits, teacher)


def _token(logits: Tensor, tags: Tensor) -> Tensor:
    learned = tags != IGNORED
    # A batch without a word to learn from gives 0, not the mean of nothing.
    total = functional.cross_entropy(logits[learned], tags[learned], reduction="sum")
    return total / learned.sum().clamp(min=1)


def _token_taught(logits: Tensor, teacher: Tensor, tags: Tensor) -> Tensor:
    learned = tags != IGNORED
    log_p, log_q = logits[learned].log_softmax(-1), teacher[learned].log_softmax(-1)
    total = functional.kl_div(log_p, log_q, reduction="sum", log_target=True)
    return total / learned.sum().clamp(min=1)


LOSSES: dict[Task, TaskLoss] = {
    "single_label": TaskLoss(_single_label, _single_label_taught),
    "multi_label": TaskLoss(_multi_label, _multi_label_taught),
    "regression": TaskLoss(_regression, _regression_taught),
    "token": TaskLoss(_token, _token_taught),
}
