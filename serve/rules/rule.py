"""What every rule has, and the kinds of numbers that rules are made of."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PositiveInt,
    Tag,
    model_validator,
)

# Beyond any model's exits; what is larger than a machine word must not come in.
MOST_EXITS = 1000
# So that votes add up exactly enough, and fit the signal.
MOST_WEIGHT = 1_000_000


class Rule(BaseModel):
    """What every rule has: the layers between which a row may leave.

    Attributes:
        min_layer: no exit before this many transformer layers.
        max_layer: at the last exit not beyond this layer every row leaves.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    min_layer: PositiveInt | None = Field(default=None, description="No exit before this layer.")
    max_layer: PositiveInt | None = Field(
        default=None, description="Every row leaves at the last exit not beyond this layer."
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> "Rule":
        if self.min_layer and self.max_layer and self.min_layer > self.max_layer:
            raise ValueError(f"min_layer {self.min_layer} is beyond max_layer {self.max_layer}")
        return self


class PartwiseRule(Rule):
    """A rule whose signal a multi-label model gives per label, and a tagger per token.

    Attributes:
        reduce: how the parts' signals become the row's: their `mean`; `max`, the least sure
            part decides; or `quantile`. By default `max` for labels, `mean` for tokens.
        quantile: the share of the parts that must be at least as sure as the row's signal says.
    """

    reduce: Literal["mean", "max", "quantile"] | None = Field(
        default=None,
        description="How signals per label or token become one: their mean, that of the least "
        "sure (max), or a quantile. Default: max for labels, mean for tokens.",
    )
    quantile: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="With reduce `quantile`: this share of the parts is at least as sure.",
    )

    @model_validator(mode="after")
    def _check_reduce(self) -> "PartwiseRule":
        if self.reduce == "quantile" and self.quantile is None:
            raise ValueError(
                'reduce "quantile" needs quantile: the share of labels or tokens, such as 0.9, '
                "that must be at least as sure"
            )
        if self.reduce != "quantile" and self.quantile is not None:
            raise ValueError('quantile needs reduce "quantile" beside it')
        return self


def _number_or_list(value: Any) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<number>"


_ONE_OR_EACH = Discriminator(_number_or_list)
# An empty list is refused with every other wrong length, when the number of exits is known.
_PER_EXIT = Field(strict=False, max_length=MOST_EXITS, fail_fast=True)

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Nats: TypeAlias = Annotated[float, Field(ge=0)]
PerExit: TypeAlias = tuple[float, ...]

Shares = Annotated[
    Annotated[Share, Tag("<number>")] | Annotated[tuple[Share, ...], _PER_EXIT, Tag("<list>")],
    _ONE_OR_EACH,
]
NatsThreshold = Annotated[
    Annotated[Nats, Tag("<number>")] | Annotated[tuple[Nats, ...], _PER_EXIT, Tag("<list>")],
    _ONE_OR_EACH,
]
Weights = Annotated[tuple[Annotated[float, Field(ge=0, le=MOST_WEIGHT)], ...], _PER_EXIT]


def _some_patience(patience: int) -> int:
    # PABEE's and PCEE's code take 0 for "off"; taken literally it would be "leave at once".
    if patience < 1:
        raise ValueError(
            f'must be 1 or more, not {patience}; to run the full model, say {{"rule": "never"}}'
        )
    return patience


Patience = Annotated[
    int,
    Field(le=MOST_EXITS, json_schema_extra={"minimum": 1}),
    AfterValidator(_some_patience),
]
