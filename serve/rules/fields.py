"""The kinds of numbers that exit rules are made of."""

import math
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag

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
