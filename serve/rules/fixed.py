"""Rules that look at no signal."""

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from serve.rules.rule import Rule


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
