"""What a client or an operator wants of early exits, instead of a rule."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

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
]


class Target(BaseModel):
    """Bounds that must all hold; `serve.policy.resolution` says which rule is used.

    Attributes:
        max_disagreement: share of texts that may get another answer than at full depth.
        max_loss: what the model's metric may lose against full depth, as a share.
        speedup: full depth's mean time over the rung's, on this machine.
        max_layers: mean number of layers per text.
        max_ms: mean milliseconds per text, on this machine.
        certified: whether the rung must be certified. None: for max_disagreement and max_loss.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    max_disagreement: SmallShare | None = Field(
        default=None,
        description="Share of texts that may get another answer than at full depth, e.g. 0.01.",
    )
    max_loss: SmallShare | None = Field(
        default=None,
        description="What the model's metric may lose against full depth, as a share, e.g. 0.005.",
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
        description="Whether only certified rules will do. Default: yes with max_disagreement or "
        "max_loss, else no.",
    )

    @property
    def limits_loss(self) -> bool:
        """Whether it bounds what answers may lose."""
        return self.max_disagreement is not None or self.max_loss is not None

    @property
    def lossless(self) -> bool:
        """Whether a bound asks for just the answers of full depth."""
        return self.max_disagreement == 0 or self.max_loss == 0

    @property
    def needs_certificate(self) -> bool:
        """Whether only certified rungs will do."""
        return self.limits_loss if self.certified is None else self.certified

    @model_validator(mode="after")
    def _check(self) -> "Target":
        if all(bound is None for name, bound in self if name != "certified"):
            raise ValueError(
                "a target needs max_disagreement, max_loss, speedup, max_layers or max_ms"
            )
        return self


class TargetChoice(BaseModel):
    """A target in the place of a rule."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    target: Target

    @model_validator(mode="before")
    @classmethod
    def _check_alone(cls, value: Any) -> Any:
        if isinstance(value, dict) and (other := value.keys() & {"rule", "profile"}):
            raise ValueError(f"a target and a {min(other)} at once; leave one of them out")
        return value
