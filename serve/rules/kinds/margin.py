"""The distance of the two best probabilities."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from serve.rules.criterion import Criterion
from serve.rules.fields import Shares
from serve.rules.kinds.threshold import GAP_SLACK, Threshold
from serve.rules.rule import PartwiseRule
from serve.rules.signals import margin
from serve.rules.traits import Traits


class MarginRule(PartwiseRule):
    """Leave when the two best probabilities are further apart than the threshold.

    CALM (Schuster et al. 2022), DREX; strict as DREX.
    """

    rule: Literal["margin"] = "margin"
    threshold: Shares = Field(
        description="From 0 to 1, strict: leave when the top probability exceeds the second "
        "by more. One number, or a list with one per exit."
    )

    def criterion(self, traits: Traits) -> Criterion:
        return Margin(margin, traits.task)


@dataclass(frozen=True)
class Margin(Threshold):
    """A wide margin is a sure answer."""

    sure_is_high: ClassVar[bool] = True

    def beyond(self, signal: NDArray[Any], threshold: NDArray[Any]) -> NDArray[np.bool_]:
        return signal > threshold

    def stay_gap(self, threshold: float, num_labels: int, temperature: float) -> float:
        p = threshold - GAP_SLACK
        return 2 * math.atanh(p) if p > 0 else 0.0
