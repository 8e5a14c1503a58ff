"""The largest probability against one threshold, or against one for each label."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from serve.errors import InvalidRule
from serve.rules.criterion import (
    Criterion,
    FreshColumns,
    HeadOutput,
    Judgement,
    Prediction,
    RowsAtExit,
    fit_width,
)
from serve.rules.kinds.threshold import GAP_SLACK, Threshold, shown
from serve.rules.rule import PartwiseRule, Rule, Share, Shares, beyond_signal, num_choices
from serve.rules.signals import confidence, softmax
from serve.rules.traits import Task, Traits, listed, logits_shape


class ConfidenceRule(PartwiseRule):
    """Leave when the largest probability, at the exit's temperature, reaches the threshold.

    "The Right Tool for the Job" (Schwartz et al. 2020); equality leaves. What answers if no exit
    was confident: its last exit, or, as in Shallow-Deep Networks (Kaya et al. 2019), the most
    confident of all.
    """

    compared: ClassVar[str] = ">="

    rule: Literal["confidence"] = "confidence"
    threshold: Shares = Field(
        description="Leave when the top probability reaches it. One number, or a list with one "
        "per exit."
    )
    fallback: Literal["last", "most_confident"] = Field(
        default="last", description="Which exit answers if none was confident."
    )

    def extremes(self, traits: Traits) -> tuple[float, float]:
        return 1.0, 1 / num_choices(traits)

    def criterion(self, traits: Traits) -> Criterion:
        kind = Confidence if self.fallback == "last" else MostConfident
        return kind(confidence, traits.task)

    def columns(self, traits: Traits) -> FreshColumns:
        if self.fallback == "last":
            return super().columns(traits)
        return {
            **super().columns(traits),
            "best": np.array(-np.inf, np.float32),
            "best_exit": np.array(-1, np.int64),
            "best_logits": np.full(logits_shape(traits), np.nan, np.float32),
        }


@dataclass(frozen=True)
class Confidence(Threshold):
    """A high probability is a sure answer."""

    sure_is_high: ClassVar[bool] = True

    def read_at(self, rows: RowsAtExit, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.read(logits, rows.temperature)

    def beyond(self, signal: NDArray[Any], threshold: NDArray[Any]) -> NDArray[np.bool_]:
        return signal >= threshold

    def stay_gap(self, threshold: float, num_labels: int, temperature: float) -> float:
        p = threshold - GAP_SLACK
        return temperature * math.log(p / (1 - p)) if p > 0.5 else 0.0


@dataclass(frozen=True)
class MostConfident(Confidence):
    """As `Confidence`; rows that no exit is sure of leave with the surest exit's logits.

    Exits before a row's first permitted one are not considered: they must not answer.
    """

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        signal = self.signal(rows, head)
        confident = self.beyond(signal, rows.at_exit("threshold"))
        surer = rows.permitted & (signal > rows["best"])
        logits = fit_width(rows["best_logits"], head.logits.shape[1], np.nan)
        each = surer.reshape(-1, *(1,) * (logits.ndim - 1))
        rows["best"] = np.where(surer, signal, rows["best"])
        rows["best_exit"] = np.where(surer, rows.exit_index, rows["best_exit"])
        rows["best_logits"] = np.where(each, head.logits, logits)
        prediction = Prediction.at(head.logits, rows.exit_index)
        falls_back = ~(confident & rows.permitted) & (rows["best_exit"] >= 0)
        prediction.logits[falls_back] = rows["best_logits"][falls_back]
        prediction.exit_index[falls_back] = rows["best_exit"][falls_back]
        return Judgement(confident, shown(signal, head), prediction)

    def stay_gap(self, threshold: float, num_labels: int, temperature: float) -> float:
        return math.nan


class ClassesRule(Rule):
    """Leave early only with certain labels, each when its probability exceeds its own threshold.

    Early-exit monoBERT (Xin et al. 2020). There a label need not be the most probable one; here
    it must be, or a row would leave with a label that was not listed. From thresholds of 1/2 on
    that is the same.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("single_label",)

    rule: Literal["classes"] = "classes"
    thresholds: Annotated[dict[str, Share], Field(min_length=1)] = Field(
        description="Thresholds by label, strict: leave when the label is the answer and its "
        "probability is above. Rows with other labels go on."
    )

    def __hash__(self) -> int:
        return hash((self.min_layer, self.max_layer, frozenset(self.thresholds.items())))

    def check(self, traits: Traits) -> None:
        super().check(traits)
        unknown = [label for label in self.thresholds if label not in traits.labels]
        if unknown:
            raise InvalidRule(f"no label {unknown[0]!r}; the model has {listed(traits.labels)}")

    def surely_leave(self, traits: Traits) -> tuple[bool | None, ...]:
        # A label that is not listed never leaves, as with threshold 1.
        thresholds = (self.thresholds.get(label, 1.0) for label in traits.labels)
        found = {beyond_signal(threshold, 1.0, 1 / len(traits.labels)) for threshold in thresholds}
        return (found.pop() if len(found) == 1 else None,) * len(traits.exits)

    def criterion(self, traits: Traits) -> Criterion:
        return Classes()

    def columns(self, traits: Traits) -> FreshColumns:
        thresholds = [self.thresholds.get(label, np.inf) for label in traits.labels]
        return {"label_thresholds": np.array(thresholds, np.float32)}


@dataclass(frozen=True)
class Classes(Criterion):
    """The best label's probability against that label's threshold."""

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        p, label = softmax(head.logits), head.logits.argmax(axis=-1)
        each_row = np.arange(len(label))
        signal = p[each_row, label]
        return Judgement(signal > rows["label_thresholds"][each_row, label], signal)
