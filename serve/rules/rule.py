"""What every exit rule has: its JSON fields, its checks, and how it is worked out for a model."""

import math
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PositiveInt,
    Tag,
    model_validator,
)

from serve.errors import InvalidRule
from serve.rules.criterion import Criterion, FreshColumns
from serve.rules.small import SmallRule
from serve.rules.traits import Task, Traits, listed
from serve.validation import RequestModel

# Above any model's number of exits. A number larger than a machine word must not come in.
MOST_EXITS = 1000
# Votes then add up exactly enough, and fit the signal.
MOST_WEIGHT = 1_000_000
_NEARLY_ONE = 0.9


def _number_or_list(value: Any) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<number>"


_ONE_OR_EACH = Discriminator(_number_or_list)
# An empty list is refused with every other wrong length, when the number of exits is known.
_PER_EXIT = Field(strict=False, max_length=MOST_EXITS, fail_fast=True)

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
AtLeastZero: TypeAlias = Annotated[float, Field(ge=0)]

# One number from 0 to 1, or a list with one per exit.
Shares = Annotated[
    Annotated[Share, Tag("<number>")] | Annotated[tuple[Share, ...], _PER_EXIT, Tag("<list>")],
    _ONE_OR_EACH,
]
# One number of 0 or more, or a list with one per exit.
AtLeastZeros = Annotated[
    Annotated[AtLeastZero, Tag("<number>")]
    | Annotated[tuple[AtLeastZero, ...], _PER_EXIT, Tag("<list>")],
    _ONE_OR_EACH,
]
Weights = Annotated[tuple[Annotated[float, Field(ge=0, le=MOST_WEIGHT)], ...], _PER_EXIT]


def _at_least_one(patience: int) -> int:
    # PABEE's and PCEE's code take 0 for "off"; taken literally it would be "leave at once".
    if patience < 1:
        raise ValueError(
            f'must be 1 or more, not {patience}; to run the full model, say {{"rule": "never"}}'
        )
    return patience


Patience = Annotated[
    int,
    Field(le=MOST_EXITS, json_schema_extra={"minimum": 1}),
    AfterValidator(_at_least_one),
]


def _small(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"threshold": float(value)}
    return value


def written(value: object) -> str:
    """Return a field's value for people; numbers have three digits.

    Near 1 these are three digits of what is missing: 0.9999 and 0.99999 are different rules.
    """
    if isinstance(value, tuple | list):
        return f"({', '.join(map(written, value))})"
    if isinstance(value, dict):
        return ", ".join(f"{name} {written(each)}" for name, each in value.items())
    if not isinstance(value, float):
        return str(value)
    if _NEARLY_ONE < value < 1:
        return f"{value:.{2 - math.floor(math.log10(1 - value))}f}".rstrip("0")
    return f"{value:.3g}"


_MODELS: dict[Task, str] = {
    "single_label": "a model that gives each text one label",
    "multi_label": "a model that gives each text any number of labels",
    "token": "a model that labels every token",
    "regression": "a regression, which has no probabilities",
}
_SPOKEN = {
    "min_layer": "from layer",
    "max_layer": "to layer",
    "leave_above": "above",
    "leave_below": "below",
    "table": "or table >=",
}
# From this share of the way to the extreme on a threshold is the extreme, rounded: 0.6931 for ln 2.
_ALL = 0.999
EVERY_TASK: tuple[Task, ...] = ("single_label", "multi_label", "token", "regression")
PROBABILITIES: tuple[Task, ...] = ("single_label", "multi_label", "token")


class Rule(RequestModel):
    """The base of exit rules.

    A subclass names itself in a field `rule: Literal["name"] = "name"`, declares its JSON fields
    and says by `criterion` how rows are judged. `serve.rules.registry` lists all rules.

    Attributes:
        tasks: the tasks of the models that can follow the rule.
        min_layer: no exit before this many transformer layers; 1 or more keeps out the table and
            the small model.
        max_layer: at the last exit not beyond this layer every row leaves.
        table: a row leaves before the first layer where the table's confidence is at least this;
            None where no table is looked at.
        small: by what a row leaves in the small model in front; None where that is not run.
        signal: what `text` calls the rule, where that is not its name in JSON.
        compared: how `text` writes that the signal is compared with the threshold.
    """

    tasks: ClassVar[tuple[Task, ...]] = EVERY_TASK
    signal: ClassVar[str | None] = None
    compared: ClassVar[str] = "at"

    rule: Any
    min_layer: PositiveInt | None = Field(default=None, description="No exit before this layer.")
    max_layer: PositiveInt | None = Field(
        default=None, description="Every row leaves at the last exit not beyond this layer."
    )
    table: Share | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Leave before the first layer, at layer 0, where the confidence of the "
        "model's table reaches this. Without it the table is not looked at.",
    )
    small: Annotated[SmallRule, BeforeValidator(_small)] | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Leave in the small model in front of the first layer, by its confidence. A "
        "number stands for its threshold. Without it the small model is not run.",
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> "Rule":
        if self.min_layer and self.max_layer and self.min_layer > self.max_layer:
            raise ValueError(f"min_layer {self.min_layer} is beyond max_layer {self.max_layer}")
        return self

    def text(self) -> str:
        """Return the rule in a few words: `entropy < 0.2 from layer 2`."""
        fields = self.model_dump(exclude_none=True, exclude_defaults=True)
        fields |= {"table": fields.pop("table")} if "table" in fields else {}
        fields.pop("small", None)
        words = [self.signal or self.rule.replace("_", " ")]
        words += [written(fields.pop(self.rule))] if self.rule in fields else []
        if "threshold" in fields:
            words.append(f"{self.compared} {written(fields.pop('threshold'))}")
        words += [f"{_SPOKEN.get(name, name)} {written(value)}" for name, value in fields.items()]
        words += [_small_text(self.small)] if self.small else []
        return " ".join(words)

    @classmethod
    def unsuited(cls, traits: Traits) -> str | None:
        """Return what is wrong with rules of this kind for a model; None if it can follow them."""
        return None if traits.task in cls.tasks else f"is not for {_MODELS[traits.task]}"

    def criterion(self, traits: Traits) -> Criterion:
        """Return how the rule judges rows of a model."""
        raise NotImplementedError

    def columns(self, traits: Traits) -> FreshColumns:
        """Return what a fresh row with this rule has in the columns that the criterion reads."""
        return {}

    @property
    def looks_before(self) -> bool:
        """Whether a row may leave before the first layer."""
        before = self.table is not None or self.small is not None
        return before and self.min_layer is None

    def check(self, traits: Traits) -> None:
        """Raise `InvalidRule`, with what would be right, if a model cannot follow this rule."""
        check_layers(self.min_layer, self.max_layer, traits.exits)
        check_one_per_exit("threshold", getattr(self, "threshold", None), traits.exits)
        if self.table is not None and traits.table_temperature is None:
            raise InvalidRule("table: this model has no table; leave it out")
        if self.small is not None and traits.small is None:
            raise InvalidRule("small: this model has no small model in front; leave it out")
        if self.small and traits.small:
            try:
                check_layers(self.small.min_layer, self.small.max_layer, traits.small.exits)
            except InvalidRule as error:
                raise InvalidRule(f"small: {error}") from None

    def extremes(self, traits: Traits) -> tuple[float, float]:
        """Return the thresholds from which on no row leaves, and every row; NaN if there are none.

        Rows at the very ends of the signal may do otherwise: a tie, or a probability of 1.
        """
        return math.nan, math.nan

    def surely_leave(self, traits: Traits) -> tuple[bool | None, ...]:
        """Tell of each exit whether every row leaves there, or none; None if the heads decide."""
        none, every = self.extremes(traits)
        thresholds = self.threshold_per_exit(len(traits.exits))
        return tuple(beyond_signal(threshold, none, every) for threshold in thresholds)

    def exits_between(self, exits: tuple[int, ...]) -> tuple[int, int]:
        """Return the indices of the first and the last exit at which a row may leave."""
        low, high = self.min_layer or 1, self.max_layer or exits[-1]
        inside = [index for index, layer in enumerate(exits) if low <= layer <= high]
        return inside[0], inside[-1]

    def threshold_per_exit(self, num_exits: int) -> tuple[float, ...]:
        """Return the threshold of each exit; 0 for rules without one."""
        threshold = getattr(self, "threshold", 0.0)
        return threshold if isinstance(threshold, tuple) else (threshold,) * num_exits


def _small_text(rule: SmallRule) -> str:
    """Return a rule for a small model in front: `or small >= 0.97 at layer 3`."""
    words, first, last = (
        [f"or small >= {written(rule.threshold)}"],
        rule.min_layer,
        rule.max_layer,
    )
    if first and first == last:
        words.append(f"at layer {first}")
    else:
        words += [f"from layer {first}"] if first else []
        words += [f"to layer {last}"] if last else []
    return " ".join(words)


class PartwiseRule(Rule):
    """A rule whose signal a multi-label model gives per label, and a tagger per token.

    Attributes:
        reduce: how the parts' signals become the row's: their `mean`; `max`, the least sure
            part decides; or `quantile`. By default `max` for labels, `mean` for tokens.
        quantile: the share of the parts that must be at least as sure as the row's signal says.
    """

    tasks: ClassVar[tuple[Task, ...]] = PROBABILITIES

    reduce: Literal["mean", "max", "quantile"] | None = Field(
        default=None,
        description="How signals per label or token become one: their mean, that of the least "
        "sure (max), or a quantile. Default: max for labels, mean for tokens.",
    )
    quantile: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="With reduce `quantile`: this share of the parts is at least as sure.",
    )

    @model_validator(mode="after")
    def _check_reduce(self) -> "PartwiseRule":
        if self.reduce == "quantile" and self.quantile is None:
            raise ValueError(
                'reduce "quantile" needs quantile: the share of labels or tokens, such as 0.9, '
                "that must be at least as sure"
            )
        if self.reduce != "quantile" and self.quantile is not None:
            raise ValueError('quantile needs reduce "quantile" beside it')
        return self

    def check(self, traits: Traits) -> None:
        if self.reduce is not None and traits.task == "single_label":
            raise InvalidRule(
                "reduce is for models that give several labels, or one per token; this one gives "
                "one label per text: leave reduce out"
            )
        super().check(traits)

    def columns(self, traits: Traits) -> FreshColumns:
        threshold = np.array(getattr(self, "threshold", 0.0), np.float32)
        if traits.task == "single_label":
            return {"threshold": threshold}
        reduce = self.reduce or ("mean" if traits.task == "token" else "max")
        quantile = {"mean": np.nan, "max": 1.0}.get(reduce, self.quantile)
        return {"threshold": threshold, "quantile": np.array(quantile, np.float64)}


def num_choices(traits: Traits) -> int:
    """Return among how many outcomes each probability is shared out."""
    return 2 if traits.task == "multi_label" else len(traits.labels)


def beyond_signal(threshold: float, none: float, every: float) -> bool | None:
    """Tell whether every row is beyond a threshold, or none; see `Rule.extremes`."""
    share = (threshold - none) / (every - none)
    if share <= 0:
        return False
    return True if share >= _ALL else None


def check_layers(min_layer: int | None, max_layer: int | None, exits: tuple[int, ...]) -> None:
    """Raise `InvalidRule` unless the model has an exit between the two layers."""
    depth = exits[-1]
    for name, bound in (("min_layer", min_layer), ("max_layer", max_layer)):
        if bound is not None and bound > depth:
            raise InvalidRule(f"{name} {bound} is beyond the model's {depth} layers")
    if max_layer is not None and max_layer < exits[0]:
        raise InvalidRule(f"max_layer {max_layer} is before the first exit: {exits_of(exits)}")
    if not any((min_layer or 1) <= layer <= (max_layer or depth) for layer in exits):
        raise InvalidRule(
            f"there is no exit from min_layer {min_layer} to max_layer {max_layer}: "
            f"{exits_of(exits)}"
        )


def check_one_per_exit(name: str, numbers: object, exits: tuple[int, ...]) -> None:
    """Raise `InvalidRule` if a list does not have one number per exit."""
    if isinstance(numbers, tuple) and len(numbers) != len(exits):
        raise InvalidRule(
            f"{name} has {len(numbers)} numbers, one per exit would be {len(exits)}: "
            f"{exits_of(exits)}"
        )


def exits_of(exits: tuple[int, ...]) -> str:
    """Return a model's exits in words."""
    return f"the model has exits at {listed(exits)}"
