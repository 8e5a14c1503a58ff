"""Certified rules from safe to fast: what `offramp calibrate` writes and targets resolve to."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from serve.rules import ExitRule, NeverRule
from serve.rules.rule import Share
from serve.rules.small import SmallModel, layers_taken, places
from serve.validation import Frozen, unsaid

# `disagreement`: another answer than full depth's, which needs no labels. `metric`: a text that
# full depth has right and the early answer has wrong; of a regression, the added absolute error
# as a share of the labels' range. `score`: the shown score of the answer, of any of several labels
# or of any token's, is further than SCORE_TOLERANCE from full depth's. `missed`: of the texts that
# full depth flags, one that the early answer does not; `false_alarms`: of the texts that full depth
# does not flag, one that the early answer does. `reference`: another answer than that of another
# classifier, the reference; `reference_score`: as `score`, from the reference's.
Loss = Literal[
    "disagreement", "metric", "score", "missed", "false_alarms", "reference", "reference_score"
]
# What full depth loses too: it is another model than the reference.
OF_REFERENCE: tuple[Loss, ...] = ("reference", "reference_score")
SCORE_TOLERANCE = 0.1
# What texts with equal tokens are. `count`: the texts are a draw of traffic, in which some texts
# come often, and each counts as it came. `once`: they are a collection, and each counts once.
Repeats = Literal["count", "once"]

_T = TypeVar("_T")

# (layers, labels), or (layers, 1) where an exit has one temperature for all labels.
ScoreTemperatures: TypeAlias = tuple[tuple[Annotated[float, Field(ge=0.01, le=100)], ...], ...]


class Certificate(Frozen):
    """A bound on what a rule may cost.

    With probability 1 - delta over the choice of the n certifying texts, the mean loss on texts
    of the same kind is at most epsilon (learn then test: Angelopoulos et al. 2021).

    Attributes:
        loss: which loss is bounded.
        epsilon: bound on the mean loss.
        delta: probability that the bound does not hold.
        n: number of certifying texts.
        observed: mean loss of the certifying texts.
        repeats: whether a text that is there several times counts each time. Older calibrations,
            which do not say so, counted it once.
    """

    loss: Loss
    epsilon: Annotated[float, Field(gt=0, lt=1)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    n: Annotated[int, Field(gt=0)]
    observed: Share
    repeats: Repeats = "once"


class Rung(Frozen):
    """A rule, what it saves and what it may cost.

    Attributes:
        rule: checked against the model with the ladder's exits.
        exit_shares: (layers,) share of the certifying texts that leave at each of `Ladder.layers`.
        disagreement: share of the certifying texts with another answer than full depth's.
        reference_disagreement: share with another answer than the reference's; None without one.
        certificates: at most one per loss, that with the smallest epsilon; none where the rule is
            too fast for any. The rule never has those about a reference alone.
    """

    rule: ExitRule
    exit_shares: tuple[Share, ...]
    disagreement: Share
    reference_disagreement: Share | None = None
    certificates: tuple[Certificate, ...] = ()

    @property
    def full_depth(self) -> bool:
        """Whether every text runs all layers, so that it loses nothing against full depth."""
        rule = self.rule
        return isinstance(rule, NeverRule) and rule.max_layer is None and not rule.looks_before

    def certificate(self, loss: Loss) -> Certificate | None:
        """Return the certificate of a loss, if the rung has one."""
        return next((c for c in self.certificates if c.loss == loss), None)


class Decisions(Frozen):
    """The rungs that are certified for what a flag decides.

    Attributes:
        flag: the score from which on a label flags a text, by label.
        num_flagged: certifying texts that full depth flags.
        rungs: from safe to fast; the first one never leaves early.
    """

    flag: dict[str, Share] = Field(min_length=1)
    num_flagged: Annotated[int, Field(ge=0)]
    rungs: tuple[Rung, ...] = Field(min_length=1)


class Data(Frozen):
    """A file of texts: its folder and name, how many texts were used, and the file's hash."""

    name: str
    rows: int
    sha256: str


class Reference(Frozen):
    """Another classifier, or a file of its answers: its folder's name, and the content's hash."""

    name: str
    sha256: str


class Ladder(Frozen):
    """The rungs of one variant: certificates hold for these weights, precision and exits only.

    Attributes:
        precision: the variant's.
        weights: sha256 of the variant's weights.
        exits: layers of the active exits, ascending.
        temperatures: (exits,) at which confidence was read.
        table: sha256 of the table that texts may leave at, before the first layer; None without.
        small: the small model in front that texts may leave in; None without.
        score_temperatures: (layers, labels or 1) which make an exit's probabilities most like full
            depth's; answers show those. None in calibrations of versions that fitted none, and of
            a regression.
        data: the files, whose texts were split by hash into those that chose the rules and those
            that certify them.
        num_tuning: texts that chose temperatures and the order of rules.
        num_certifying: texts that certify.
        mean_tokens: mean length of the certifying texts.
        metric: what the loss `metric` is about, such as `accuracy`; None without labels.
        tolerance: values further apart disagree; None of other tasks than regression.
        rungs: from safe to fast; the first one never leaves early.
        reference: which other classifier the losses `reference` and `reference_score` are about.
        decisions: the same for the decisions of flags, each flag once.
    """

    precision: Literal["fp32", "int8", "fp16"]
    weights: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    exits: tuple[int, ...] = Field(min_length=1)
    table: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = unsaid()
    small: SmallModel | None = unsaid()
    temperatures: tuple[PositiveFloat, ...]
    score_temperatures: ScoreTemperatures | None = None
    data: tuple[Data, ...] = Field(min_length=1)
    num_tuning: Annotated[int, Field(gt=0)]
    num_certifying: Annotated[int, Field(gt=0)]
    mean_tokens: PositiveFloat
    metric: str | None = None
    tolerance: NonNegativeFloat | None = None
    rungs: tuple[Rung, ...] = Field(min_length=1)
    reference: Reference | None = None
    decisions: tuple[Decisions, ...] = ()

    def decided(self, flag: Mapping[str, float]) -> Decisions | None:
        """Return what is certified for a flag."""
        return next((each for each in self.decisions if each.flag == flag), None)

    def mean_layers(self, rung: Rung) -> float:
        """Return the mean layers that a rung's texts run, those of a small model included."""
        taken = layers_taken(self.exits, self.table is not None, self.small, rung.rule)
        return sum(share * layers for share, layers in zip(rung.exit_shares, taken, strict=True))

    @property
    def layers(self) -> tuple[int, ...]:
        """Where texts can leave, see `Traits.layers`."""
        return places(self.exits, self.table is not None, self.small)

    def after(self, table: str | None, small: SmallModel | None) -> "Ladder":
        """Return what was certified without a table or a small model for a bundle that has them."""
        if (table, small) == (self.table, self.small):
            return self
        had_table = int(self.table is not None)
        new_table = int(table is not None) - had_table
        new_exits = len(small.exits) if small and not self.small else 0

        def spread(of_places: tuple[_T, ...], nothing: _T) -> tuple[_T, ...]:
            new = (nothing,) * (new_table + new_exits)
            return (*of_places[:had_table], *new, *of_places[had_table:])

        def unused(rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
            shares = (spread(rung.exit_shares, 0.0) for rung in rungs)
            return tuple(
                rung.model_copy(update={"exit_shares": each})
                for rung, each in zip(rungs, shares, strict=True)
            )

        scores = self.score_temperatures
        return self.model_copy(
            update={
                "table": table,
                "small": small,
                "score_temperatures": scores and spread(scores, (1.0,) * len(scores[0])),
                "rungs": unused(self.rungs),
                "decisions": tuple(
                    each.model_copy(update={"rungs": unused(each.rungs)}) for each in self.decisions
                ),
            }
        )

    @model_validator(mode="after")
    def _check(self) -> "Ladder":
        if len(self.temperatures) != len(self.exits):
            raise ValueError(
                f"{len(self.temperatures)} temperatures for {len(self.exits)} exits: one each"
            )
        if self.score_temperatures and len(self.score_temperatures) != len(self.layers):
            raise ValueError(
                f"score_temperatures for {len(self.score_temperatures)} of {len(self.layers)} exits"
            )
        self._check_rungs("rungs", self.rungs)
        for place, decided in enumerate(self.decisions):
            self._check_rungs(f"decisions.{place}.rungs", decided.rungs)
        return self

    def _check_rungs(self, name: str, rungs: tuple[Rung, ...]) -> None:
        if not rungs[0].full_depth:
            raise ValueError(f"{name}: the first one must be the rule never, which is always valid")
        for place, rung in enumerate(rungs):
            shares = rung.exit_shares
            if len(shares) != len(self.layers) or not math.isclose(sum(shares), 1, abs_tol=1e-6):
                raise ValueError(
                    f"{name}.{place}.exit_shares: one per exit, {len(self.layers)}, adding up to 1"
                )
            if len({c.loss for c in rung.certificates}) < len(rung.certificates):
                raise ValueError(f"{name}.{place}.certificates: more than one of one loss")
        layers = [self.mean_layers(rung) for rung in rungs]
        if any(later > sooner + 1e-6 for sooner, later in pairwise(layers)):
            raise ValueError(f"{name}: must be ordered from safe to fast, by their mean layers")
