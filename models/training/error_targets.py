"""What a head that estimates its own error should have said (BERxiT, Xin et al. 2021).

One linear layer estimates the error of every exit, as in BERxiT: what shows that an answer is
wrong is much the same at every depth, and the few errors of the late exits would be too little to
learn it from.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from models.errors import TrainingFailed
from models.heads import AnyHeadConfig, HeadConfig
from models.multi_exit import MultiExitModel
from serve.rules.traits import Task


class ErrorTarget(NamedTuple):
    """How an exit's error is told.

    Attributes:
        answers: from logits to what labels would say, see `models.data.batches.Batch`.
        error: from such answers and the labels to (rows,) from 0 to 1.
    """

    answers: Callable[[Tensor], Tensor]
    error: Callable[[Tensor, Tensor], Tensor]


# A tagger has many answers to a text, and a head has one estimate for it.
ERROR_TARGETS: dict[Task, ErrorTarget] = {
    "single_label": ErrorTarget(
        lambda logits: logits.argmax(dim=-1), lambda said, gold: (said != gold).float()
    ),
    "multi_label": ErrorTarget(
        lambda logits: (logits > 0).float(), lambda said, gold: (said != gold).any(dim=-1).float()
    ),
    "regression": ErrorTarget(
        lambda logits: logits[:, 0], lambda said, gold: (said - gold).tanh().abs()
    ),
}


def with_estimate(head: AnyHeadConfig) -> AnyHeadConfig:
    """Return the shape of a head that also estimates its own error.

    Raises:
        TrainingFailed: it is FastBERT's, which has no features to estimate from. The options of new
            heads have been checked before, so it is a classifier's own.
    """
    if not isinstance(head, HeadConfig):
        raise TrainingFailed(
            "--learn-error: the classifier's own head, which stays the last exit's, is an "
            "attention head, which gives no estimate of its error; leave --learn-error out"
        )
    return head.model_copy(update={"uncertainty": "pooler" if head.pooler else "pooling"})


def share_estimate(model: MultiExitModel) -> None:
    """Let one layer estimate the error of every exit; it is the first head's."""
    shared = model.head(0).uncertainty
    assert isinstance(shared, nn.Module)
    for head in model.heads:
        head.uncertainty = shared
