"""From labels to a yes or no: which labels flag a text, and from which probability on."""

import math
from typing import Annotated, TypeAlias

from pydantic import Field, StringConstraints

from serve.errors import InvalidRule
from serve.rules.traits import Traits, listed

# No model here has as many, and messages list them.
_MAX_LABELS = 1000

Label = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000)]
Flag: TypeAlias = Annotated[
    dict[Label, Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]],
    Field(
        min_length=1,
        max_length=_MAX_LABELS,
        description="By label, the probability from which on it flags a text.",
    ),
]

OUTSIDE = "O"


def check_flag(flag: Flag, traits: Traits) -> None:
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


def problem_of_flag(flag: Flag, traits: Traits) -> str | None:
    """Return why a flag says the same of every text, or one of its labels does; None if not."""
    # Of tokens, 0 flags a text with any such entity. Of one label per text, one of all labels
    # reaches its threshold if these do not add up to more than the probabilities do.
    least = 1.0 if traits.task == "token" else min(flag.values())
    together = sum(flag.get(label, math.inf) for label in traits.labels)
    if least == 0 or (traits.task == "single_label" and together <= 1):
        return "flag: it flags every text; raise its thresholds"
    if idle := next((label for label, threshold in flag.items() if threshold == 1), None):
        return (
            f"flag: {idle!r} from 1 on flags next to no text; lower its threshold, or leave it out"
        )
    return None


def flaggable(traits: Traits) -> tuple[str, ...]:
    """Return the labels that can flag: of tokens, the kinds of entities, without B- and I-."""
    if traits.task != "token":
        return traits.labels
    kinds = dict.fromkeys(kind_of(label) for label in traits.labels)
    return tuple(kind for kind in kinds if kind != OUTSIDE)


def kind_of(label: str) -> str:
    """Return a token's label without its B- or I-."""
    return label[2:] if label[:2] in ("B-", "I-") else label
