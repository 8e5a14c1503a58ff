"""Figures with their intervals, and the one table and the one sentence that show them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from models.quality import page
from models.quality.points import Interval
from serve.rules.traits import listed

LEVEL = 0.95
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure with its 95 % interval: of seeds by Student's t, of texts by the bootstrap.

    Attributes:
        values: one for each seed; or, of texts, that of all texts and then one for each sample.
        num_texts: how many texts the bootstrap draws; None of seeds.
    """

    values: NDArray[np.float64]
    num_texts: int | None = None

    @property
    def value(self) -> float:
        """The mean of the seeds, or the figure of all texts."""
        return float(self.values.mean() if self.num_texts is None else self.values[0])

    @property
    def half(self) -> float:
        """Half the width of the interval over seeds; infinite of one seed."""
        count = len(self.values)
        if count < 2:
            return float("inf")
        quantile = float(stats.t.ppf((1 + LEVEL) / 2, count - 1))
        return quantile * float(np.std(self.values, ddof=1)) / count**0.5

    @property
    def interval(self) -> Interval:
        """The interval; wide open of one seed."""
        if self.num_texts is not None:
            return Interval.of(self.values[1:])
        return Interval(self.value - self.half, self.value + self.half)

    @property
    def differs(self) -> bool:
        """Whether a difference is shown: the interval does not hold 0."""
        return not self.interval.low <= 0 <= self.interval.high

    def __sub__(self, other: "Figure") -> "Figure":
        return Figure(self.values - other.values, self.num_texts)


class Column(NamedTuple):
    """A column of figures.

    Attributes:
        head: its heading.
        scale: what a figure is multiplied by; as a rule shares become percent.
        digits: after the point.
        signed: whether the figures are differences.
    """

    head: str
    scale: float = 100.0
    digits: int = 1
    signed: bool = False

    def cell(self, figure: Figure) -> str:
        """Return a figure with its interval.

        If no sample of the texts has a difference, no text has changed, and the interval says
        nothing: then the exact bound of the share that may change stands in its place.
        """
        if not np.isfinite(figure.value):
            return "-"
        count, value = figure.num_texts, self._number(figure.value)
        if count is None:
            half = self.scale * figure.half
            return value if np.isinf(half) else f"{value} ± {half:.{self.digits}f}"
        if self.signed and np.abs(figure.values).max() < _ROUNDING:
            return f"0 of {count:,}: at most {100 * most_share(count):.2f} %"
        low, high = map(self._number, figure.interval)
        return f"{value} ({low} to {high})"

    def _number(self, value: float) -> str:
        return f"{self.scale * value:{'+' if self.signed else ''}.{self.digits}f}"


def by_column(seeds: ArrayLike) -> list[Figure]:
    """Return the figure of each column of (seeds, columns)."""
    return [Figure(values) for values in np.asarray(seeds, np.float64).T]


def table(columns: Sequence[Column | str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; the cells of a `Column` are figures, other cells stand as given."""
    shown = [
        [c.cell(v) if isinstance(c, Column) and v is not None else v
         for c, v in zip(columns, row, strict=True)]
        for row in rows
    ]  # fmt: skip
    return page.table([c.head if isinstance(c, Column) else c for c in columns], shown)


def verdict(what: str, gaps: Mapping[str, Figure], column: Column) -> str:
    """Return which of several differences are shown.

    Args:
        what: the difference, such as `patience less entropy`.
        gaps: the differences by what they are of.
        column: how they are written.
    """
    words, signed = [], column._replace(signed=True)
    for sign, side in ((1, "higher"), (-1, "lower")):
        shown = [
            f"{name} ({signed.cell(gap)})"
            for name, gap in gaps.items()
            if gap.differs and gap.value * sign > 0
        ]
        words += [f"{side} for {listed(shown)}"] if shown else []
    same = sum(not gap.differs for gap in gaps.values())
    above = sum(gap.value > 0 for gap in gaps.values())
    words += [f"no difference is shown for {same} of {len(gaps)}"] if same else []
    return f"{what}: {'; '.join(words)}. The mean is above 0 for {above} of {len(gaps)}."


def most_share(num_texts: int, level: float = LEVEL) -> float:
    """Return the one-sided upper bound of a share of which no text of so many was seen."""
    return float(1 - (1 - level) ** (1 / num_texts))
