"""Rules that look at one exit's answer: is its signal beyond a threshold?"""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from serve.rules.rule import NatsThreshold, PartwiseRule, Rule, Share, Shares


class EntropyRule(PartwiseRule):
    """Leave when the entropy in nats is strictly below the threshold.

    DeeBERT (Xin et al. 2020), BranchyNet, ElasticBERT. Threshold 0 never leaves early; in
    ElasticBERT's and BERxiT's code it sometimes does, where rounding makes an entropy negative.
    """

    rule: Literal["entropy"] = "entropy"
    threshold: NatsThreshold = Field(
        description="Nats, strict: leave when the entropy is below it. At most ln(labels), of "
        "multi-label models ln(2). One number, or a list with one per exit."
    )


class NormalizedEntropyRule(PartwiseRule):
    """Leave when the entropy, as a share of the largest possible, is strictly below a threshold.

    FastBERT's `speed` (Liu et al. 2020): the higher, the earlier. Its package compares as here;
    its script `run_fastbert.py` also leaves at equality.
    """

    rule: Literal["normalized_entropy"] = "normalized_entropy"
    threshold: Shares = Field(
        description="From 0 to 1, strict: leave when entropy / ln(labels) is below it. "
        "One number, or a list with one per exit."
    )


class ConfidenceRule(PartwiseRule):
    """Leave when the largest probability, at the exit's temperature, reaches the threshold.

    "The Right Tool for the Job" (Schwartz et al. 2020); equality leaves. What answers if no exit
    was confident: its last exit, or, as in Shallow-Deep Networks (Kaya et al. 2019), the most
    confident of all.
    """

    rule: Literal["confidence"] = "confidence"
    threshold: Shares = Field(
        description="Leave when the top probability reaches it. One number, or a list with one "
        "per exit."
    )
    fallback: Literal["last", "most_confident"] = Field(
        default="last", description="Which exit answers if none was confident."
    )


class MarginRule(PartwiseRule):
    """Leave when the two best probabilities are further apart than the threshold.

    CALM (Schuster et al. 2022), DREX; strict as DREX.
    """

    rule: Literal["margin"] = "margin"
    threshold: Shares = Field(
        description="From 0 to 1, strict: leave when the top probability exceeds the second "
        "by more. One number, or a list with one per exit."
    )


class LearnedRule(Rule):
    """Leave when the exit head's own predicted error is strictly below the threshold.

    BERxiT (Xin et al. 2021), "learning to exit". The prediction is of being wrong, as in its
    code; the paper speaks of the opposite, certainty. The last exit is not asked.
    """

    rule: Literal["learned"] = "learned"
    threshold: Shares = Field(
        description="From 0 to 1, strict: leave when the predicted error is below it. "
        "One number, or a list with one per exit."
    )


class ClassesRule(Rule):
    """Leave early only with certain labels, each when its probability exceeds its own threshold.

    Early-exit monoBERT (Xin et al. 2020). There a label need not be the most probable one; here
    it must be, or a row would leave with a label that was not listed. From thresholds of 1/2 on
    that is the same.
    """

    rule: Literal["classes"] = "classes"
    thresholds: Annotated[dict[str, Share], Field(min_length=1)] = Field(
        description="By label, strict: leave when it is the answer and its probability is above. "
        "Rows with other labels go on."
    )

    def __hash__(self) -> int:
        return hash((self.min_layer, self.max_layer, frozenset(self.thresholds.items())))


def thresholds_in(rule: Rule) -> Iterable[float]:
    """Return a rule's thresholds: none, one, or one per exit."""
    threshold: float | tuple[float, ...] = getattr(rule, "threshold", ())
    return threshold if isinstance(threshold, tuple) else (threshold,)
