"""Votes of the exits so far."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from serve.errors import InvalidRule
from serve.rules.criterion import (
    Criterion,
    FreshColumns,
    HeadOutput,
    Judgement,
    Prediction,
    Reason,
    RowsAtExit,
)
from serve.rules.rule import Rule, Weights, check_one_per_exit
from serve.rules.signals import decisions
from serve.rules.traits import Task, Traits


class VotingRule(Rule):
    """Leave when enough of the exits so far have voted for one label; that label is the answer.

    After Sun et al. 2021 (arXiv 2105.13792), of which there is no code; the rule is Offramp's
    own. Either a number of votes, or a share: votes / exits so far ** exponent.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("single_label",)

    rule: Literal["voting"] = "voting"
    votes: float | None = Field(
        default=None, gt=0, description="Leave when the leading label has as many votes."
    )
    share: float | None = Field(
        default=None,
        gt=0,
        description="Leave when the leading label's votes / (exits so far ** exponent) reach it.",
    )
    exponent: float | None = Field(
        default=None,
        ge=0,
        le=10,
        description="With share. At 1 the first exit's single vote is the whole share: every text "
        "leaves there.",
    )
    weights: Weights | None = Field(
        default=None, description="What each exit's vote counts, one per exit; default 1 each."
    )

    @model_validator(mode="after")
    def _check_votes(self) -> "VotingRule":
        if (self.votes is None) == (self.share is None):
            raise ValueError("give either votes or share with exponent")
        if self.share is not None and self.exponent is None:
            raise ValueError("share needs exponent: share is compared with votes / exits**exponent")
        if self.votes is not None and self.exponent is not None:
            raise ValueError("exponent goes with share; votes are counted as they are")
        if self.weights is not None and not any(self.weights):
            raise ValueError("weights must not all be 0: no exit would have a vote")
        return self

    def check(self, traits: Traits) -> None:
        super().check(traits)
        check_one_per_exit("weights", self.weights, traits.exits)
        num_exits = len(traits.exits)
        so_far = np.cumsum(self.weights or np.ones(num_exits)).tolist()
        if self.votes is not None and self.votes > so_far[-1]:
            raise InvalidRule(
                f"{self.votes:g} votes are out of reach: all {num_exits} exits together have "
                f"{so_far[-1]:g}"
            )
        if self.share is not None and self.exponent is not None:
            within_reach = max(votes / i**self.exponent for i, votes in enumerate(so_far, start=1))
            if self.share > within_reach:
                raise InvalidRule(
                    f"share {self.share:g} is out of reach: with exponent {self.exponent:g} and "
                    f"{num_exits} exits it is at most {within_reach:.6g}"
                )

    def surely_leave(self, traits: Traits) -> tuple[bool | None, ...]:
        exits = np.arange(1, len(traits.exits) + 1, dtype=np.float64)
        weights = np.array(self.weights or np.ones_like(exits))
        most, heaviest = np.cumsum(weights), np.maximum.accumulate(weights)
        # One exit outvotes all others together, and so do more than half of an odd number.
        least = np.where(2 * heaviest > most, heaviest, 0.0)
        if self.weights is None and len(traits.labels) == 2:
            least = np.where(exits % 2 == 1, (exits + 1) / 2, least)
        scale, needed = exits ** (self.exponent or 0.0), self.votes or self.share or 0.0
        enough = zip(most / scale >= needed, least / scale >= needed, strict=True)
        return tuple(bool(always) if always or not ever else None for ever, always in enough)

    def criterion(self, traits: Traits) -> Criterion:
        return Voting()

    def columns(self, traits: Traits) -> FreshColumns:
        # A plain number of votes is a share with exponent 0.
        exits = np.arange(1, len(traits.exits) + 1, dtype=np.float64)
        return {
            "share": np.array(self.votes if self.share is None else self.share, np.float64),
            "scale": exits ** (self.exponent or 0.0),
            "weight": np.array(self.weights or np.ones_like(exits), np.float64),
            "votes": np.zeros(len(traits.labels), np.float64),
        }


@dataclass(frozen=True)
class Voting(Criterion):
    """Enough votes for one label, and no tie."""

    reason: ClassVar[Reason] = Reason.VOTES
    counts: ClassVar[bool] = True

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        label = decisions("single_label", head.logits)
        votes, voting = rows["votes"].copy(), np.flatnonzero(label >= 0)
        votes[voting, label[voting]] += rows.at_exit("weight")[voting]
        rows["votes"] = votes
        signal = votes.max(axis=1) / rows.at_exit("scale")
        tie = _tied(votes)
        # A row without a number here has no scores to leave with.
        confident = (signal >= rows["share"]) & ~tie & (label >= 0)
        prediction = Prediction.at(head.logits, rows.exit_index)
        # In a tie this exit's own label stands.
        prediction.label[:] = np.where(tie, -1, votes.argmax(axis=1))
        return Judgement(confident, signal.astype(np.float32), prediction)


def _tied(votes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell of each row of votes (rows, labels) whether several labels have the most."""
    leading = votes == votes.max(axis=1, keepdims=True)
    several: NDArray[np.bool_] = np.count_nonzero(leading, axis=1) > 1
    return several
