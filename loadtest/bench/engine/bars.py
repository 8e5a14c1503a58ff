"""A measured value and the bound that it is held against."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from models.report.markdown import table

# Called with the name of the next step.
Report: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Bar:
    """One line of the verdict."""

    what: str  # what was measured; equal for all cases of one bar
    case: str
    value: float
    bound: float
    sense: Literal["at most", "at least"]  # which side of the bound is good
    unit: str = ""  # of value and bound; empty for ratios

    @property
    def met(self) -> bool:
        """Whether the value is on the good side; NaN is not."""
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


def bars_table(bars: Iterable[Bar]) -> str:
    """Return value, bound and verdict of every bar as Markdown."""
    rows = [
        [
            *(bar.what, bar.case, f"{bar.value:,.3f} {bar.unit}".strip()),
            f"{bar.sense} {bar.bound:,g}",
            "met" if bar.met else "**missed**",
        ]
        for bar in bars
    ]
    return table(("what", "case", "value", "bar", "verdict"), rows)
