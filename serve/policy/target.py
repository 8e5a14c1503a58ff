"""What a client or an operator wants of early exits, instead of a rule."""

import json
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from serve.policy.ladder import Loss
from serve.validation import OR_PERCENT, RequestModel, unsaid

# From here on a share of texts is no goal, but a percentage that was not divided by 100.
_NO_SHARE = 0.5


def _small(share: float) -> float:
    if share >= _NO_SHARE:
        raise ValueError(
            f"must be a share below {_NO_SHARE:g}, not {share:g}: 1 % is 0.01, half a percent 0.005"
        )
    return share


# What may be lost, as a share; 0 for nothing.
SmallShare = Annotated[
    float,
    Field(ge=0, json_schema_extra={"exclusiveMaximum": _NO_SHARE}),
    AfterValidator(_small),
    OR_PERCENT,
]


class Target(RequestModel):
    """Bounds that must all hold; `serve.policy.resolution` says which rule is used."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, serialize_by_alias=True
    )

    max_disagreement: SmallShare | None = Field(
        default=None,
        description="Share of texts that may get another answer than at full depth, e.g. 0.01.",
    )
    max_loss: SmallShare | None = Field(
        default=None,
        description="What the model's metric may lose against full depth, as a share, e.g. 0.005.",
    )
    max_missed: SmallShare | None = Field(
        default=None,
        description="Under a flag: of the texts that full depth flags, the share that may not be "
        "flagged, e.g. 0.001.",
    )
    max_false_alarms: SmallShare | None = Field(
        default=None,
        description="Under a flag: of the texts that full depth does not flag, the share that may "
        "be flagged, e.g. 0.01.",
    )
    speedup: Annotated[float, Field(ge=1)] | None = Field(
        default=None, description="How much faster than full depth, in the mean, on this machine."
    )
    max_layers: Annotated[float, Field(ge=1)] | None = Field(
        default=None, description="Mean number of layers per text."
    )
    max_ms: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="Mean milliseconds from a text's first layer to its answer, of texts that are "
        "alone on this machine.",
    )
    certified: bool | None = Field(
        default=None,
        description="Whether only certified rules will do. Default: no if speed alone is asked "
        "for, else yes.",
    )
    of: Literal["reference"] | None = Field(
        default=None,
        alias="from",
        description="What max_disagreement is measured from: `reference`, the classifier that "
        "`offramp calibrate --reference` has named. Default: full depth of the model itself.",
    )

    @property
    def losses(self) -> dict[Loss, float]:
        """What it bounds of what answers may lose, and the bounds."""
        wanted: tuple[tuple[Loss, float | None], ...] = (
            (self.of or "disagreement", self.max_disagreement),
            ("metric", self.max_loss),
            ("missed", self.max_missed),
            ("false_alarms", self.max_false_alarms),
        )
        return {loss: most for loss, most in wanted if most is not None}

    @property
    def decides(self) -> bool:
        """Whether it is about the decisions of a flag."""
        return self.max_missed is not None or self.max_false_alarms is not None

    @property
    def lossless(self) -> bool:
        """Whether a bound asks for just what full depth gives."""
        return self.of is None and 0 in self.losses.values()

    @property
    def needs_certificate(self) -> bool:
        """Whether only certified rungs will do."""
        return bool(self.losses) if self.certified is None else self.certified

    @model_validator(mode="after")
    def _check(self) -> "Target":
        if all(bound is None for name, bound in self if name not in ("certified", "of")):
            raise ValueError(
                "a target needs max_disagreement, max_loss, max_missed, max_false_alarms, speedup, "
                "max_layers or max_ms"
            )
        if self.of and self.losses.keys() != {self.of}:
            raise ValueError(
                f"from {self.of} says what max_disagreement is measured from; it goes with "
                "max_disagreement, and without max_loss, max_missed and max_false_alarms"
            )
        if self.decides and self.losses.keys() & {"disagreement", "metric"}:
            raise ValueError(
                "max_missed and max_false_alarms are about a flag, max_disagreement and max_loss "
                "about labels; no rule is certified for both: leave two of them out"
            )
        return self


class TargetChoice(RequestModel):
    """A target in the place of a rule."""

    target: Target

    @model_validator(mode="before")
    @classmethod
    def _check_alone(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if other := value.keys() & {"rule", "profile"}:
            raise ValueError(f"a target and a {min(other)} at once; leave one of them out")
        if wanted := bounds_in(value):
            raise ValueError(f'a target is missing: say {{"target": {wanted}}}')
        return value


def bounds_in(value: dict[str, Any]) -> str | None:
    """Return the JSON of a target whose bounds stand where the target itself should."""
    bounds = {name: value[name] for name in Target.model_fields if name in value}
    shown = (
        f'"{name}": {json.dumps(bound) if isinstance(bound, bool | float) else "..."}'
        for name, bound in bounds.items()
    )
    return f"{{{', '.join(shown)}}}" if bounds else None


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
