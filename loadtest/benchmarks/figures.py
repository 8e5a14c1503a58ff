"""Each contender's figures over all rounds, and where this server loses."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from loadtest.benchmarks.cells import Cells
from loadtest.benchmarks.measure import CHECK


class Span(NamedTuple):
    """A figure over the rounds."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return shown(self.mean) + (
            f" ({shown(self.low)} to {shown(self.high)})" if self.low != self.high else ""
        )


def shown(figure: float) -> str:
    """Return three digits, and no exponent."""
    return f"{figure:.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


class Column(NamedTuple):
    """A figure of the table."""

    title: str
    load: str
    field: str
    more_is_better: bool
    factor: float = 1.0


COLUMNS = (
    Column("texts/s, 16 clients", "closed 16 x 1", "per_second", True),
    Column("64 clients", "closed 64 x 1", "per_second", True),
    Column("p99 ms, 16", "closed 16 x 1", "p99_ms", False),
    Column("p99 ms, 64", "closed 64 x 1", "p99_ms", False),
    Column("CPU s per 1,000", "closed 16 x 1", "cpu_s_per_1000", False),
)
BOUNDS = (
    Column("p99 under 50 ms", "open 50 ms", "per_second", True),
    Column("under 100 ms", "open 100 ms", "per_second", True),
)
OTHERS = (
    Column("texts/s, 1 client", "closed 1 x 1", "per_second", True),
    Column("texts/s, 32 a request", "closed 16 x 32", "per_second", True),
    *BOUNDS,
    Column("MB", "closed 16 x 1", "memory_mb", False),
    Column("start s", CHECK, "start_s", False),
)


def span(cells: Cells, suite: str, contender: str, column: Column) -> Span | None:
    """Return a figure; None if it is not measured."""
    found = [
        cell[column.field] * column.factor
        for key, cell in cells.by_key.items()
        if (key.suite, key.contender, key.load) == (suite, contender, column.load)
        and cell[column.field] is not None
    ]
    return Span(mean(found), min(found), max(found)) if found else None


def measured(cells: Cells) -> Mapping[str, Sequence[str]]:
    """Return the contenders of each suite, in order of measurement."""
    suites: dict[str, dict[str, None]] = {}
    for key in cells.by_key:
        suites.setdefault(key.suite, {})[key.contender] = None
    return {suite: tuple(names) for suite, names in suites.items()}


def losses(cells: Cells) -> Iterator[str]:
    """Yield a sentence for each figure in which a peer is ahead by more than the ranges of both."""
    for suite, names in measured(cells).items():
        for own in ("Offramp, never", "Offramp, balanced"):
            for column in (*COLUMNS, *OTHERS):
                spans = {name: span(cells, suite, name, column) for name in names}
                peers = {n: s for n, s in spans.items() if s and not n.startswith("Offramp")}
                ours = spans.get(own)
                if not ours or not peers:
                    continue
                best = (max if column.more_is_better else min)(peers, key=lambda n: peers[n].mean)
                theirs = peers[best]
                behind = theirs.low > ours.high, theirs.high < ours.low
                if behind[not column.more_is_better]:
                    yield (
                        f"{suite}, {column.title}: {own.split(', ')[1]} {shown(ours.mean)}, "
                        f"{best} {shown(theirs.mean)}."
                    )
