"""A measured value and what it should be."""

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Bar:
    """One line of the verdict.

    Attributes:
        what: what was measured; equal for all cases of one bar.
        case: which of them.
        value: the figure.
        bound: what it is held against.
        sense: on which side of the bound it should lie.
        unit: of both; empty for ratios.
    """

    what: str
    case: str
    value: float
    bound: float
    sense: Literal["at most", "at least"]
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the value is on the right side; NaN is on neither."""
        if self.sense == "at most":
            return self.value <= self.bound
        return self.value >= self.bound

    def as_json(self) -> dict[str, Any]:
        """Return the bar and its verdict as JSON data."""
        return asdict(self) | {"met": self.met}


def at_most(what: str, case: str, value: float, bound: float, unit: str = "") -> Bar:
    """Return a bar that a smaller value meets."""
    return Bar(what, case, value, bound, "at most", unit)


def at_least(what: str, case: str, value: float, bound: float, unit: str = "") -> Bar:
    """Return a bar that a larger value meets."""
    return Bar(what, case, value, bound, "at least", unit)
