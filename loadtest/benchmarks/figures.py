"""Each contender's figures over all rounds, and where this server loses."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from loadtest.benchmarks.cells import Cells
from loadtest.benchmarks.measure import CHECK, LEFT_OUT


class Span(NamedTuple):
    """A figure over the rounds."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        furthest = max(self.high - self.mean, self.mean - self.low)
        digits = f"{furthest:.0f}" if furthest >= 10 else f"{furthest:.2g}"
        return shown(self.mean) + (f"±{digits}" if furthest else "")


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


SAME = Column("same label %", CHECK, "same", True, 100)
ACCURACY = Column("accuracy %", CHECK, "accuracy", True, 100)
LAYERS = Column("layers", CHECK, "mean_layer", False)
SPEED_16 = Column("texts/s, 16 clients", "closed 16 x 1", "per_second", True)
SPEED_64 = Column("texts/s, 64 clients", "closed 64 x 1", "per_second", True)
P99_16 = Column("p99 ms, 16 clients", "closed 16 x 1", "p99_ms", False)
P99_64 = Column("p99 ms, 64 clients", "closed 64 x 1", "p99_ms", False)
CPU = Column("CPU s per 1,000", "closed 16 x 1", "cpu_s_per_1000", False)
COLUMNS = (SPEED_16, SPEED_64, P99_16, P99_64, CPU)
BOUNDS = (
    Column("texts/s, p99 under 50 ms", "open 50 ms", "per_second", True),
    Column("texts/s, p99 under 100 ms", "open 100 ms", "per_second", True),
)
OTHERS = (
    Column("texts/s, 1 client", "closed 1 x 1", "per_second", True),
    Column("texts/s, 32 a request", "closed 16 x 32", "per_second", True),
    *BOUNDS,
    Column("MB", "closed 16 x 1", "memory_mb", False),
    Column("start s", CHECK, "start_s", False),
)
NEVER, BALANCED, FAST = "Offramp, never", "Offramp, balanced", "Offramp, fast"
SAME_AT_LEAST = 98.5  # percent of a peer's labels, if its figures bear comparison


class Bar(NamedTuple):
    """What is wanted of this server beside the best peer."""

    suite: str
    own: str
    column: Column
    wanted: float  # own figure over the peer's: at least, or at most where less is better
    peer: str = ""  # the best one if not given


BARS = (
    Bar("sst2-minilm", NEVER, SPEED_64, 0.97),
    Bar("sst2-minilm", BALANCED, SPEED_16, 1.5),
    Bar("sst2-minilm", BALANCED, SPEED_64, 1.5),
    Bar("sst2-minilm", BALANCED, P99_16, 1.0),
    Bar("sst2-minilm", BALANCED, P99_64, 1.0),
    Bar("sst2-mpnet", BALANCED, SPEED_64, 2.0),
    Bar("sst2-cascade", FAST, SPEED_64, 2.7, "ONNX Runtime + FastAPI"),
    Bar("sst2-minilm", "Offramp on Ray, balanced", SPEED_64, 1.6, "Ray Serve, tuned"),
)


class Beside(NamedTuple):
    """A figure of this server beside a peer's."""

    own: Span
    peer: str
    theirs: Span

    @property
    def ratio(self) -> float:
        """The own figure over the peer's."""
        return self.own.mean / self.theirs.mean


def span(cells: Cells, suite: str, contender: str, column: Column) -> Span | None:
    """Return a figure; None if it is not measured."""
    found = [
        cell[column.field] * column.factor
        for key, cell in cells.by_key.items()
        if (key.suite, key.contender, key.load) == (suite, contender, column.load)
        and cell[column.field] is not None
    ]
    return Span(mean(found), min(found), max(found)) if found else None


def num_rounds(cells: Cells, suite: str) -> int:
    """Return how many rounds a suite had, of the contenders with most."""
    return 1 + max(key.round for key in cells.by_key if key.suite == suite)


def differences(cells: Cells, suite: str) -> Sequence[float]:
    """Return by what share throughput differs between the first and the last half of the rounds."""
    half = num_rounds(cells, suite) // 2
    speeds: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for key, cell in cells.by_key.items():
        if key.suite == suite and key.load in (SPEED_16.load, SPEED_64.load):
            halves = speeds.setdefault((key.contender, key.load), ([], []))
            halves[key.round >= half].append(cell[SPEED_16.field])
    return [abs(mean(last) / mean(first) - 1) for first, last in speeds.values() if first and last]


def measured(cells: Cells) -> Mapping[str, Sequence[str]]:
    """Return the contenders of each suite: peers first, the fastest at the top."""
    suites: dict[str, dict[str, None]] = {}
    for key in cells.by_key:
        if key.load == CHECK:
            suites.setdefault(key.suite, {})[key.contender] = None
    return {suite: _ordered(cells, suite, list(names)) for suite, names in suites.items()}


def _ordered(cells: Cells, suite: str, names: Sequence[str]) -> Sequence[str]:
    def place(name: str) -> tuple[bool, float]:
        speed = span(cells, suite, name, SPEED_64)
        own = is_own(name)
        return own, own or -(speed.mean if speed else 0.0)

    return sorted(names, key=place)


def is_own(name: str) -> bool:
    """Whether a contender is this server."""
    return name.startswith("Offramp")


def left_out(cells: Cells) -> Mapping[str, str]:
    """Return why contenders have no figures, by suite and name."""
    answered = {(key.suite, key.contender) for key in cells.by_key if key.load == CHECK}
    return {
        f"{key.contender} ({key.suite})": cell["why"]
        for key, cell in cells.by_key.items()
        if key.load == LEFT_OUT and (key.suite, key.contender) not in answered
    }


def beside(cells: Cells, suite: str, own: str, column: Column, peer: str = "") -> Beside | None:
    """Return a figure beside a peer's; beside the best with the same labels if none is given."""
    spans = {}
    for name in measured(cells).get(suite, ()):
        same, figure = span(cells, suite, name, SAME), span(cells, suite, name, column)
        alike = same is not None and same.mean >= SAME_AT_LEAST
        if figure and (name == peer if peer else alike and not is_own(name)):
            spans[name] = figure
    figure = span(cells, suite, own, column)
    if not figure or not spans:
        return None
    best = (max if column.more_is_better else min)(spans, key=lambda name: spans[name].mean)
    return Beside(figure, best, spans[best])


def bars(cells: Cells) -> Iterator[tuple[Bar, Beside, bool]]:
    """Yield each bar that is measured, what was found, and whether it holds."""
    for bar in BARS:
        if found := beside(cells, bar.suite, bar.own, bar.column, bar.peer):
            over = found.ratio >= bar.wanted
            yield bar, found, over if bar.column.more_is_better else found.ratio <= bar.wanted


def losses(cells: Cells) -> Iterator[tuple[str, str, Column, Beside]]:
    """Yield each figure in which a peer with the same labels is ahead by more than both ranges.

    Of suites beside the first these are the figures of the first table.
    """
    for place, suite in enumerate(measured(cells)):
        for own in (NEVER, BALANCED):
            for column in (*COLUMNS, *(() if place else OTHERS)):
                found = beside(cells, suite, own, column)
                if not found:
                    continue
                ahead = found.theirs.low > found.own.high, found.theirs.high < found.own.low
                if ahead[not column.more_is_better]:
                    yield suite, own, column, found
