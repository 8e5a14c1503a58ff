"""Rules that look at no signal."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from serve.errors import InvalidRule
from serve.rules.criterion import Criterion, HeadOutput, Judgement, Reason, RowsAtExit
from serve.rules.rule import Rule, exits_of
from serve.rules.traits import Traits

# Constant arrays, cut to a batch's rows; they take no memory per row.
_MOST_ROWS = 1 << 30
_YES, _NO = np.broadcast_to(np.True_, _MOST_ROWS), np.broadcast_to(np.False_, _MOST_ROWS)
_NO_SIGNAL = np.broadcast_to(np.float32(np.nan), _MOST_ROWS)


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

    def check(self, traits: Traits) -> None:
        if self.layer not in traits.exits:
            raise InvalidRule(f"layer {self.layer} has no exit: {exits_of(traits.exits)}")
        super().check(traits)

    def criterion(self, traits: Traits) -> Criterion:
        return Layer()

    def exits_between(self, exits: tuple[int, ...]) -> tuple[int, int]:
        index = exits.index(self.layer)
        return index, index


class NeverRule(Rule):
    """Run to the last exit, or to the last one not beyond `max_layer`."""

    rule: Literal["never"] = "never"

    def criterion(self, traits: Traits) -> Criterion:
        return Never()


@dataclass(frozen=True)
class Layer(Criterion):
    """Every row leaves as soon as it may."""

    reason: ClassVar[Reason] = Reason.LAYER

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        num_rows = len(head.logits)
        return Judgement(_YES[:num_rows], _NO_SIGNAL[:num_rows])

    def stay_gap(self, threshold: float, num_labels: int, temperature: float) -> float:
        return math.inf


@dataclass(frozen=True)
class Never(Criterion):
    """No row leaves of its own accord."""

    reason: ClassVar[Reason] = Reason.STAYS

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        num_rows = len(head.logits)
        return Judgement(_NO[:num_rows], _NO_SIGNAL[:num_rows])

    def first_heard(self, first: int, last: int) -> int:
        return last

    def stay_gap(self, threshold: float, num_labels: int, temperature: float) -> float:
        return math.inf
