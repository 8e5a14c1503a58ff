"""From labels to a yes or no: which labels flag a text, and from which probability on."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import (
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from serve.errors import InvalidRule
from serve.rules.traits import Traits, flaggable, listed
from serve.validation import RequestModel

# No model here has as many, and messages list them.
_MAX_LABELS = 1000

Label = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000)]
_Bound = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Bands(RequestModel):
    """Two bounds of a label, and so three outcomes.

    Attributes:
        flag: the probability from which on the label flags a text.
        defer: the probability from which on a text that nothing flags is left to a bigger model or
            a person.
    """

    flag: _Bound
    defer: _Bound

    @model_validator(mode="after")
    def _check(self) -> "Bands":
        if self.defer >= self.flag:
            raise ValueError(
                f"defer {self.defer:g} must be below flag {self.flag:g}: texts between the two are "
                "deferred"
            )
        return self


def _kind_of_bound(value: Any) -> str:
    return "<bands>" if isinstance(value, dict | Bands) else "<number>"


Flag: TypeAlias = Annotated[
    dict[
        Label,
        Annotated[
            Annotated[_Bound, Tag("<number>")] | Annotated[Bands, Tag("<bands>")],
            Discriminator(_kind_of_bound),
        ],
    ],
    Field(
        min_length=1,
        max_length=_MAX_LABELS,
        description="For each label, the probability from which on it flags a text; or an object "
        "with `flag`, and `defer`: from there on a text that nothing flags is deferred.",
    ),
]
# A flag wherever it has been checked.
AnyFlag: TypeAlias = Mapping[str, float | Bands]


def thresholds(flag: AnyFlag) -> dict[str, float]:
    """Return the probability from which on each label flags a text."""
    return {label: b.flag if isinstance(b, Bands) else b for label, b in flag.items()}


def deferrals(flag: AnyFlag) -> dict[str, float]:
    """Return the probability from which on labels defer a text; labels that defer none are out."""
    return {label: b.defer for label, b in flag.items() if isinstance(b, Bands)}


def with_threshold(flag: AnyFlag, threshold: float, lower_only: bool = False) -> AnyFlag:
    """Return a flag with another threshold for all its labels, or for those that it lowers.

    What defers stays where it is lower.
    """
    lower = deferrals(flag)
    found: dict[str, float | Bands] = {}
    for label, bound in thresholds(flag).items():
        least = min(bound, threshold) if lower_only else threshold
        defers = lower.get(label, math.inf) < least
        found[label] = Bands(flag=least, defer=lower[label]) if defers else least
    return found


def check_flag(flag: AnyFlag, traits: Traits) -> None:
    """Raise unless the model can flag by these labels.

    Raises:
        InvalidRule: the model gives a value, or has no such label.
    """
    if traits.task == "regression":
        raise InvalidRule(
            "flag: this model gives a value, not labels; compare its value with a bound of your own"
        )
    known = flaggable(traits)
    if unknown := next((label for label in flag if label not in known), None):
        raise InvalidRule(f"flag: no label {unknown[:64]!r}; the model has {listed(known)}")


def problem_of_flag(flag: AnyFlag, traits: Traits) -> str | None:
    """Return why a flag says the same of every text, or one of its labels does; None if not."""
    bounds = thresholds(flag)
    # For tokens, 0 flags a text with any such entity. For one label per text, one of all labels
    # reaches its threshold if these do not add up to more than the probabilities do.
    least = 1.0 if traits.task == "token" else min(bounds.values())
    together = sum(bounds.get(label, math.inf) for label in traits.labels)
    if least == 0 or (traits.task == "single_label" and together <= 1):
        return "flag: it flags every text; raise its thresholds"
    if idle := next((label for label, threshold in bounds.items() if threshold == 1), None):
        return (
            f"flag: {idle!r} from 1 on flags next to no text; lower its threshold, or leave it out"
        )
    if 0 in deferrals(flag).values() and traits.task != "token":
        return "flag: it defers every text that it does not flag; raise its defer"
    return None
