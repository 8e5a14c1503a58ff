"""Bounds that a policy puts on what requests may choose."""

from typing import Literal, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from serve.errors import OverrideForbidden
from serve.rules import ExitRule, LayerRule
from serve.validation import RequestModel, unsaid

# Whether requests may choose a setting: `any`, or `none` but the profile's. Where the policy does
# not say, a guardrail's requests may not if there is a flag in it, and all others may.
Own: TypeAlias = Literal["any", "none"] | None
Lockable = Literal["flag", "windows", "unchecked", "special_tokens"]


class Limits(RequestModel):
    """What requests may choose, and the layers at which texts may leave.

    Attributes:
        overrides: which exits a request may choose: `any` rule, target or profile; only `profiles`;
            or `none`, so that all get the default.
        flag: whether a request may bring thresholds of its own; to guardrails also rules and
            targets.
        windows: whether a request may say how long texts are cut, or that they are truncated.
        unchecked: whether a request may say what a guardrail lets pass without a look.
        special_tokens: whether a request may say that special tokens in texts are no text.
        min_layer: the earliest layer at which a request leaves, whatever its rule says; 1 keeps
            out the table and the small model alone.
        table_flags: whether a text that a flag looks at may leave before the first layer: chosen
            words lead a table easily.
        max_layer: the last layer that a request runs.
    """

    overrides: Literal["any", "profiles", "none"] = "any"
    flag: Own = unsaid()
    windows: Own = unsaid()
    unchecked: Own = unsaid()
    special_tokens: Own = unsaid()
    min_layer: PositiveInt | None = None
    max_layer: PositiveInt | None = None
    table_flags: bool = Field(default=False, exclude_if=lambda value: not value)

    @model_validator(mode="after")
    def _check_bounds(self) -> "Limits":
        if self.min_layer and self.max_layer and self.min_layer > self.max_layer:
            raise ValueError(f"min_layer {self.min_layer} is beyond max_layer {self.max_layer}")
        return self

    def lets_choose(self, setting: Lockable, guarding: bool) -> bool:
        """Tell whether a request may choose a setting; `guarding`: where a flag is to be kept."""
        said: Own = getattr(self, setting)
        return not guarding if said is None else said == "any"

    def flagging(self) -> "Limits":
        """Return the limits on what a flag looks at."""
        if self.table_flags:
            return self
        return self.model_copy(update={"min_layer": self.min_layer or 1})

    def applied_to(self, rule: ExitRule) -> ExitRule:
        """Return the rule within the limits; the same object if it is within them already.

        Raises:
            OverrideForbidden: the limits leave the rule no layer.
        """
        low = max(rule.min_layer or 1, self.min_layer or 1)
        high = min(filter(None, (rule.max_layer, self.max_layer)), default=None)
        if isinstance(rule, LayerRule) and not low <= rule.layer <= (high or rule.layer):
            raise OverrideForbidden(
                f"layer {rule.layer} is outside the policy's limits: {_allowed(low, high)}"
            )
        if high is not None and low > high:
            raise OverrideForbidden(
                f"the rule leaves nothing between min_layer {low} and max_layer {high} "
                "of the policy's limits"
            )
        bounds = {
            "min_layer": low if low > 1 else None,
            "max_layer": high,
            "table": None if self.min_layer or rule.min_layer else rule.table,
            "small": None if self.min_layer or rule.min_layer else rule.small,
        }
        if all(getattr(rule, name) == bound for name, bound in bounds.items()):
            return rule
        return rule.model_copy(update=bounds)


def _allowed(low: int, high: int | None) -> str:
    return f"layer {low} or later" if high is None else f"layers {low} to {high}"
