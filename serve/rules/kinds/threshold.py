"""Rules that compare one signal of an exit with a threshold."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from serve.rules.criterion import Criterion, FreshColumns, HeadOutput, Judgement, RowsAtExit
from serve.rules.rule import AtLeastZeros, PartwiseRule, Rule, Shares, num_choices
from serve.rules.signals import distributions, entropy, margin, normalized_entropy, reduced
from serve.rules.traits import Task, Traits

# From this distance of two logits on, the second label's probability is 0 in float32.
WIDEST_GAP = 120.0
# Larger than the float32 rounding error of the signals.
GAP_SLACK = 1e-5


class EntropyRule(PartwiseRule):
    """Leave when the entropy in nats is strictly below the threshold.

    DeeBERT (Xin et al. 2020), BranchyNet, ElasticBERT. Threshold 0 never leaves early; in
    ElasticBERT's and BERxiT's code it sometimes does, where rounding makes an entropy negative.
    """

    compared: ClassVar[str] = "<"

    rule: Literal["entropy"] = "entropy"
    threshold: AtLeastZeros = Field(
        description="Nats, strict: leave when the entropy is below it. Above ln(labels), for "
        "multi-label models ln(2), every text leaves at the first permitted exit. One number, or "
        "a list with one per exit."
    )

    def extremes(self, traits: Traits) -> tuple[float, float]:
        return 0.0, math.log(num_choices(traits))

    def criterion(self, traits: Traits) -> Criterion:
        return Entropy(entropy, traits.task)


class NormalizedEntropyRule(PartwiseRule):
    """Leave when the entropy, as a share of the largest possible, is strictly below a threshold.

    FastBERT's `speed` (Liu et al. 2020): the higher, the earlier. Its package compares as here;
    its script `run_fastbert.py` also leaves at equality.
    """

    compared: ClassVar[str] = "<"

    rule: Literal["normalized_entropy"] = "normalized_entropy"
    threshold: AtLeastZeros = Field(
        description="Strict: leave when entropy / ln(labels), from 0 to 1, is below it. Above 1 "
        "every text leaves at the first permitted exit. One number, or a list with one per exit."
    )

    def extremes(self, traits: Traits) -> tuple[float, float]:
        return 0.0, 1.0

    def criterion(self, traits: Traits) -> Criterion:
        return NormalizedEntropy(normalized_entropy, traits.task)


class MarginRule(PartwiseRule):
    """Leave when the two best probabilities are further apart than the threshold.

    CALM (Schuster et al. 2022), DREX; strict as DREX.
    """

    compared: ClassVar[str] = ">"

    rule: Literal["margin"] = "margin"
    threshold: Shares = Field(
        description="From 0 to 1, strict: leave when the top probability exceeds the second "
        "by more. One number, or a list with one per exit."
    )

    def extremes(self, traits: Traits) -> tuple[float, float]:
        return 1.0, 0.0

    def criterion(self, traits: Traits) -> Criterion:
        return Margin(margin, traits.task)


class LearnedRule(Rule):
    """Leave when the exit head's own predicted error is strictly below the threshold.

    BERxiT (Xin et al. 2021), "learning to exit". The prediction is of being wrong, as in its
    code; the paper speaks of the opposite, certainty. The last exit is not asked.
    """

    signal: ClassVar[str | None] = "predicted error"
    compared: ClassVar[str] = "<"

    rule: Literal["learned"] = "learned"
    threshold: Shares = Field(
        description="From 0 to 1, strict: leave when the predicted error is below it. "
        "One number, or a list with one per exit."
    )

    @classmethod
    def unsuited(cls, traits: Traits) -> str | None:
        if not traits.learned:
            return "needs exit heads that have learned to predict their own error"
        return None

    def extremes(self, traits: Traits) -> tuple[float, float]:
        return 0.0, 1.0

    def criterion(self, traits: Traits) -> Criterion:
        return Learned()

    def columns(self, traits: Traits) -> FreshColumns:
        return {"threshold": np.array(self.threshold, np.float32)}


@dataclass(frozen=True)
class Threshold(Criterion):
    """Leave when the signal of this exit lies beyond the row's threshold.

    Attributes:
        read: returns (rows,) or (rows, parts) signals of logits (..., labels).
        task: the model's task.
    """

    read: Callable[..., NDArray[np.float32]]
    task: Task

    sure_is_high: ClassVar[bool] = False

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        signal = self.signal(rows, head)
        return Judgement(self.beyond(signal, rows.at_exit("threshold")), shown(signal, head))

    def signal(self, rows: RowsAtExit, head: HeadOutput) -> NDArray[np.float32]:
        """Return (rows,) signals; those of several parts are reduced to one as the rule says."""
        if self.task == "single_label":
            return self.read_at(rows, head.logits)
        signals = self.read_at(rows, distributions(self.task, head.logits))
        return reduced(signals, head.counted, rows["quantile"], self.sure_is_high)

    def read_at(self, rows: RowsAtExit, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the signals of logits at this exit."""
        return self.read(logits)

    def beyond(self, signal: NDArray[Any], threshold: NDArray[Any]) -> NDArray[np.bool_]:
        """Return (rows,) whether each signal is beyond its threshold."""
        return signal < threshold


@dataclass(frozen=True)
class Entropy(Threshold):
    """A low entropy is a sure answer."""

    def stay_gap(self, threshold: float, num_labels: int, temperature: float) -> float:
        """Return where the entropy of two labels comes down to the threshold.

        More labels have more entropy at the same distance of the two largest logits.
        """
        if threshold <= 0:
            return math.inf
        narrow, wide = 0.0, WIDEST_GAP
        while wide - narrow > 1e-9 * WIDEST_GAP:
            middle = (narrow + wide) / 2
            if _entropy_of_two(middle) > threshold + GAP_SLACK:
                narrow = middle
            else:
                wide = middle
        return narrow


@dataclass(frozen=True)
class NormalizedEntropy(Entropy):
    """Entropy over ln(labels)."""

    def stay_gap(self, threshold: float, num_labels: int, temperature: float) -> float:
        return super().stay_gap(threshold * math.log(num_labels), num_labels, temperature)


@dataclass(frozen=True)
class Margin(Threshold):
    """A wide margin is a sure answer."""

    sure_is_high: ClassVar[bool] = True

    def beyond(self, signal: NDArray[Any], threshold: NDArray[Any]) -> NDArray[np.bool_]:
        return signal > threshold

    def stay_gap(self, threshold: float, num_labels: int, temperature: float) -> float:
        p = threshold - GAP_SLACK
        return 2 * math.atanh(p) if p > 0 else 0.0


@dataclass(frozen=True)
class Learned(Criterion):
    """A low predicted error is a sure answer."""

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        signal = head.uncertainty
        if signal is None:
            signal = np.full(len(head.logits), np.nan, np.float32)
        return Judgement(signal < rows.at_exit("threshold"), signal)


def shown(signal: NDArray[np.float32], head: HeadOutput) -> NDArray[np.float32]:
    """Return the signals as answers report them: 0 for rows in which no token counts."""
    if head.counted is None:
        return signal
    return np.where(head.counted.any(axis=1), signal, np.float32(0))


def _entropy_of_two(gap: float) -> float:
    e = math.exp(-gap)
    return math.log1p(e) + gap * e / (1 + e)
