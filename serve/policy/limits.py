"""Bounds that a policy puts on what requests may choose."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

from serve.errors import OverrideForbidden
from serve.rules import ExitRule, LayerRule


class Limits(BaseModel):
    """What requests may choose, and the layers at which they may leave.

    Attributes:
        overrides: `any` rule, target or profile; only `profiles`; or `none`, the default for all.
        min_layer: the earliest layer at which a request leaves, whatever its rule says.
        max_layer: the last layer that a request runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    overrides: Literal["any", "profiles", "none"] = "any"
    min_layer: PositiveInt | None = None
    max_layer: PositiveInt | None = None

    @model_validator(mode="after")
    def _check_bounds(self) -> "Limits":
        if self.min_layer and self.max_layer and self.min_layer > self.max_layer:
            raise ValueError(f"min_layer {self.min_layer} is beyond max_layer {self.max_layer}")
        return self

    def applied_to(self, rule: ExitRule) -> ExitRule:
        """Return the rule within the limits; the same object if it is within them already.

        Raises:
            OverrideForbidden: the limits leave the rule no layer.
        """
        low = max(rule.min_layer or 1, self.min_layer or 1)
        bounds = [b for b in (rule.max_layer, self.max_layer) if b is not None]
        high = min(bounds, default=None)
        if isinstance(rule, LayerRule) and not low <= rule.layer <= (high or rule.layer):
            raise OverrideForbidden(
                f"layer {rule.layer} is outside the policy's limits: {_allowed(low, high)}"
            )
        if high is not None and low > high:
            raise OverrideForbidden(
                f"the rule leaves nothing between min_layer {low} and max_layer {high} "
                "of the policy's limits"
            )
        min_layer = low if low > 1 else None
        if (rule.min_layer, rule.max_layer) == (min_layer, high):
            return rule
        return rule.model_copy(update={"min_layer": min_layer, "max_layer": high})


def _allowed(low: int, high: int | None) -> str:
    return f"layer {low} or later" if high is None else f"layers {low} to {high}"
