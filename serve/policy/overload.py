"""What may be given up while more comes than the server can answer."""

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from serve.policy.ladder import Loss
from serve.policy.target import SmallShare
from serve.validation import RequestModel, unsaid

# Why an answer is degraded: a faster rung took the place of the one that was asked for, or the
# deadline came before the rule let the text leave.
Cause: TypeAlias = Literal["overload", "deadline"]
CAUSES: Final[tuple[Cause, ...]] = ("overload", "deadline")

_EXAMPLE = '{"max_disagreement": 0.03}'
_NEVER_TAG, _LIMIT_TAG = "<never>", "<limit>"


class LossLimit(RequestModel):
    """How far requests may move along the ladder: all bounds must hold, by a certificate.

    Attributes:
        max_disagreement: share of texts that may get another answer than at full depth.
        max_loss: what the model's metric may lose against full depth, as a share.
    """

    max_disagreement: SmallShare | None = unsaid()
    max_loss: SmallShare | None = unsaid()

    @property
    def losses(self) -> dict[Loss, float]:
        """What it bounds, and the bounds."""
        wanted: tuple[tuple[Loss, float | None], ...] = (
            ("disagreement", self.max_disagreement),
            ("metric", self.max_loss),
        )
        return {loss: most for loss, most in wanted if most is not None}

    @model_validator(mode="after")
    def _check(self) -> "LossLimit":
        if not self.losses:
            raise ValueError(f"needs max_disagreement or max_loss, such as {_EXAMPLE}")
        return self


def _kind(value: Any) -> str | None:
    if value is False:
        return _NEVER_TAG
    return _LIMIT_TAG if isinstance(value, dict | LossLimit) else None


# What a request or a profile says of itself: not to be moved at all, or no further than this.
Degrade: TypeAlias = Annotated[
    Annotated[Literal[False], Tag(_NEVER_TAG)] | Annotated[LossLimit, Tag(_LIMIT_TAG)],
    Discriminator(
        _kind,
        custom_error_type="degrade",
        custom_error_message=f"must be false, or how far to go, such as {_EXAMPLE}",
    ),
]


class Overload(RequestModel):
    """When requests move to faster certified rules, and how far.

    Attributes:
        queue_ms: requests that wait longer move, by the estimated time of the rows before them.
        target: how far they move at most.
        deadline: under `cap` a request whose wait takes more than half of its `timeout_ms` is
            refused at once; under `keep` it waits until the time has passed.
    """

    queue_ms: Annotated[float, Field(gt=0, le=60_000)]
    target: LossLimit
    deadline: Literal["cap", "keep"] = "cap"
