"""Rules that look at several exits in a row."""

from typing import Literal

from pydantic import Field, model_validator

from serve.rules.rule import PartwiseRule, Patience, Rule, Shares, Weights


class PatienceRule(Rule):
    """Leave when `patience` consecutive exits have agreed with the exit before them.

    PABEE (Zhou et al. 2020): patience t needs t + 1 identical predictions in a row, so the
    earliest exit is the (t + 1)-th. A regression agrees when its value has moved by less than
    `tolerance` since the exit before; a slow drift is agreement.
    """

    rule: Literal["patience"] = "patience"
    patience: Patience = Field(
        description="How often in a row an exit must agree with the one before; 1 or more."
    )
    tolerance: float | None = Field(
        default=None,
        gt=0,
        description="Of regressions only: values less than this apart agree.",
    )


class ConfidentPatienceRule(PartwiseRule):
    """Leave when `patience` consecutive exits were confident, whatever their labels.

    PCEE-BERT (Zhang et al. 2022): confident is a normalized entropy strictly below the
    threshold. Unlike PABEE's, patience 1 may leave at the first exit.
    """

    rule: Literal["confident_patience"] = "confident_patience"
    threshold: Shares = Field(
        description="From 0 to 1, strict: an exit is confident when entropy / ln(labels) is "
        "below it. One number, or a list with one per exit."
    )
    patience: Patience = Field(description="How many exits in a row must be confident; 1 or more.")
    ensemble: Literal["none", "run", "all"] = Field(
        default="none",
        description="What answers: the exit itself; the mean probability over the confident run "
        "and the exit just before it; or that over all exits so far.",
    )


class VotingRule(Rule):
    """Leave when enough of the exits so far have voted for one label; that label is the answer.

    After Sun et al. 2021 (arXiv 2105.13792), of which there is no code; the rule is Offramp's
    own. Either a number of votes, or a share: votes / exits so far ** exponent.
    """

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
        description="With share. At 1 it is the plain share, which the first exit alone has.",
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
            raise ValueError("weights must not all be 0: nobody would vote")
        return self
