"""Exit rules as JSON: one shape in requests, policies, manifests and the command line.

A rule says when a row may leave. `ExitRule` validates what can be known without a model;
`resolve` checks it against one model's exits and labels.
"""

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, TypeAdapter, model_validator

from serve.errors import InvalidRule
from serve.traits import Traits


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


class EntropyRule(Rule):
    """Leave when the softmax entropy in nats is strictly below the threshold.

    DeeBERT (Xin et al. 2020), BranchyNet, ElasticBERT. Threshold 0 never leaves early.
    """

    rule: Literal["entropy"] = "entropy"
    threshold: float = Field(
        ge=0, description="Nats, strict: leave when the entropy is below it. At most ln(labels)."
    )


class ConfidenceRule(Rule):
    """Leave when the largest softmax probability, at the exit's temperature, reaches the threshold.

    "The Right Tool for the Job" (Schwartz et al. 2020); equality leaves.
    """

    rule: Literal["confidence"] = "confidence"
    threshold: float = Field(ge=0, le=1, description="Leave when the top probability reaches it.")


class PatienceRule(Rule):
    """Leave when `patience` consecutive exits have agreed with the exit before them.

    PABEE (Zhou et al. 2020): patience t needs t + 1 identical predictions in a row, so
    the earliest exit is the (t + 1)-th.
    """

    rule: Literal["patience"] = "patience"
    # The bound is beyond any model's exits; what is larger than a machine word must not come in.
    patience: PositiveInt = Field(
        le=1000,
        description="How often in a row an exit must agree with the one before; 1 or more.",
    )


class LayerRule(Rule):
    """Leave at this layer, whatever the signal."""

    rule: Literal["layer"] = "layer"
    layer: PositiveInt = Field(description="The exit layer; the model must have an exit there.")

    @model_validator(mode="after")
    def _check_layer(self) -> "LayerRule":
        if self.min_layer and self.layer < self.min_layer:
            raise ValueError(f"layer {self.layer} is before min_layer {self.min_layer}")
        if self.max_layer and self.layer > self.max_layer:
            raise ValueError(f"layer {self.layer} is beyond max_layer {self.max_layer}")
        return self


class NeverRule(Rule):
    """Run to the last exit, or to the last one not beyond `max_layer`."""

    rule: Literal["never"] = "never"


ExitRule: TypeAlias = Annotated[
    EntropyRule | ConfidenceRule | PatienceRule | LayerRule | NeverRule,
    Field(discriminator="rule"),
]

EXIT_RULE: TypeAdapter[ExitRule] = TypeAdapter(ExitRule)


def entropy_ceiling(num_labels: int) -> float:
    """Return the largest entropy threshold accepted: ln(labels), rounded up to one decimal.

    No entropy exceeds ln(labels), so anything larger is a mistake of unit (bits, per cent).
    The rounding admits the 0.7 that the literature uses for "always" with two labels.
    """
    return math.ceil(math.log(num_labels) * 10) / 10


def check_rule(rule: ExitRule, traits: Traits) -> None:
    """Raise `InvalidRule` if the model cannot follow the rule.

    Args:
        rule: the rule a request or a policy asks for.
        traits: of the model.
    """
    _check_layers(rule, traits.exits)
    num_labels = len(traits.labels)
    if isinstance(rule, EntropyRule) and rule.threshold > entropy_ceiling(num_labels):
        raise InvalidRule(
            f"entropy threshold {rule.threshold:g} is out of range: with {num_labels} labels the "
            f"entropy is at most {math.log(num_labels):.4g} nats, "
            f"so the threshold must be from 0 to {entropy_ceiling(num_labels):g}"
        )


def _check_layers(rule: ExitRule, exits: tuple[int, ...]) -> None:
    depth = exits[-1]
    listed = ", ".join(map(str, exits))
    if isinstance(rule, LayerRule) and rule.layer not in exits:
        raise InvalidRule(f"layer {rule.layer} has no exit: the model has exits at {listed}")
    for name in ("min_layer", "max_layer"):
        bound = getattr(rule, name)
        if bound is not None and bound > depth:
            raise InvalidRule(f"{name} {bound} is beyond the model's {depth} layers")
    if rule.max_layer is not None and rule.max_layer < exits[0]:
        raise InvalidRule(
            f"max_layer {rule.max_layer} is before the first exit: the model has exits at {listed}"
        )
    if not any((rule.min_layer or 1) <= e <= (rule.max_layer or depth) for e in exits):
        raise InvalidRule(
            f"there is no exit from min_layer {rule.min_layer} to max_layer {rule.max_layer}: "
            f"the model has exits at {listed}"
        )
