"""What of a model decides which exit rules it can follow, and how its logits are read."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Task: TypeAlias = Literal["single_label", "multi_label", "regression", "token"]


@dataclass(frozen=True, slots=True)
class Traits:
    """A model as its exit rules see it.

    Attributes:
        exits: exit layers, ascending; the last is the model's depth.
        labels: label names by id; for a regression, the one name of its value.
        task: `single_label`: softmax over the labels; `multi_label`: a sigmoid for each;
            `regression`: the one logit is the value; `token`: softmax over the labels for
            every token.
        learned: whether the exit heads predict their own error (BERxiT).
        max_tokens: longest input, special tokens included; 0 where that is not known.
        score_temperatures: (exits, labels or 1) at which answers show the exits' scores; None
            for 1 throughout.
    """

    exits: tuple[int, ...]
    labels: tuple[str, ...]
    task: Task = "single_label"
    learned: bool = False
    max_tokens: int = 0
    score_temperatures: tuple[tuple[float, ...], ...] | None = None


def listed(values: Iterable[object]) -> str:
    """Return values in words."""
    return ", ".join(map(str, values))


def logits_shape(traits: Traits) -> tuple[int, ...]:
    """Return the shape of one row's logits before any exit; tokens come with the first."""
    return (0, len(traits.labels)) if traits.task == "token" else (len(traits.labels),)
