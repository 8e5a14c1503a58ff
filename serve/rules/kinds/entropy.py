"""Entropy, in nats and as a share of the largest possible."""

import math
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from serve.rules.criterion import Criterion
from serve.rules.fields import AtLeastZeros
from serve.rules.kinds.threshold import GAP_SLACK, WIDEST_GAP, Threshold
from serve.rules.rule import PartwiseRule
from serve.rules.signals import entropy, normalized_entropy
from serve.rules.traits import Traits


class EntropyRule(PartwiseRule):
    """Leave when the entropy in nats is strictly below the threshold.

    DeeBERT (Xin et al. 2020), BranchyNet, ElasticBERT. Threshold 0 never leaves early; in
    ElasticBERT's and BERxiT's code it sometimes does, where rounding makes an entropy negative.
    """

    rule: Literal["entropy"] = "entropy"
    threshold: AtLeastZeros = Field(
        description="Nats, strict: leave when the entropy is below it. Above ln(labels), for "
        "multi-label models ln(2), every text leaves at the first permitted exit. One number, or "
        "a list with one per exit."
    )

    def criterion(self, traits: Traits) -> Criterion:
        return Entropy(entropy, traits.task)


class NormalizedEntropyRule(PartwiseRule):
    """Leave when the entropy, as a share of the largest possible, is strictly below a threshold.

    FastBERT's `speed` (Liu et al. 2020): the higher, the earlier. Its package compares as here;
    its script `run_fastbert.py` also leaves at equality.
    """

    rule: Literal["normalized_entropy"] = "normalized_entropy"
    threshold: AtLeastZeros = Field(
        description="Strict: leave when entropy / ln(labels), from 0 to 1, is below it. Above 1 "
        "every text leaves at the first permitted exit. One number, or a list with one per exit."
    )

    def criterion(self, traits: Traits) -> Criterion:
        return NormalizedEntropy(normalized_entropy, traits.task)


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


def _entropy_of_two(gap: float) -> float:
    e = math.exp(-gap)
    return math.log1p(e) + gap * e / (1 + e)
