"""The table of recipes and the sentences below it, from figures by recipe and seed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from models.experiments.figures import Mean, difference
from models.experiments.run import SEEDS
from models.quality.page import table
from models.quality.rule_families import ENTROPY
from serve.rules.traits import listed

BASELINE = "joint"


class Row(NamedTuple):
    """A line of the table.

    Attributes:
        name: of the recipe.
        options: of `offramp train`.
        family: the rules by which its texts leave.
        frozen: whether it trains exits of a classifier that another run has trained.
    """

    name: str
    options: tuple[str, ...] = ()
    family: str = ENTROPY
    frozen: bool = False


class Figures(NamedTuple):
    """A recipe's figures of one seed.

    Attributes:
        exits: the main metric of every exit.
        half: the main metric at half depth in the mean.
        layers: the mean depth at which at most 1 % of the tuning half get other answers.
        other: share of other answers that the other half gets there.
        processor_s: of the training.
    """

    exits: Sequence[float]
    half: float
    layers: float
    other: float
    processor_s: float

    @property
    def last(self) -> float:
        """The main metric of the last exit."""
        return self.exits[-1]


# By recipe and seed, as far as they are trained.
Grid: TypeAlias = Mapping[Row, Mapping[int, Figures]]
_Figure: TypeAlias = Callable[[Figures], float]


class _Compared(NamedTuple):
    """A figure by which recipes are compared.

    Attributes:
        place: how its line begins.
        figure: itself.
        scale: what it is shown in.
        unit: after the number.
        less: whether less is better.
    """

    place: str
    figure: _Figure
    scale: float = 100.0
    unit: str = " points"
    less: bool = False


_COMPARED = (
    _Compared("At half depth", lambda f: f.half),
    _Compared("At the last exit", lambda f: f.last),
    _Compared("In layers at 1 % other answers", lambda f: f.layers, 1.0, " layers", less=True),
)


def recipe_table(grid: Grid, depth: int) -> str:
    """Return the table: quality by exit and at half depth, depth at 1 % other answers, time."""
    head = ["recipe", f"exit {depth}", "half depth", "layers at 1 %", "% other there", "time"]
    return table(head, (_line(row, found, grid) for row, found in grid.items()))


def sentences(grid: Grid) -> Iterator[str]:
    """Yield what the table shows against the baseline, and what it does not show."""
    few = [f"{row.name} ({len(found)})" for row, found in grid.items() if len(found) < len(SEEDS)]
    if few:
        yield f"Fewer than {len(SEEDS)} seeds so far: {listed(few)}."
    baseline = next((found for row, found in grid.items() if row.name == BASELINE), {})
    others = {row.name: found for row, found in grid.items() if row.name != BASELINE}
    gaps = {
        name: [_gap(compared.figure, found, baseline) for compared in _COMPARED]
        for name, found in others.items()
        if len(found.keys() & baseline.keys()) > 1
    }
    if gaps:
        yield from _differences(gaps)


def _line(row: Row, found: Mapping[int, Figures], grid: Grid) -> list[str]:
    def mean(figure: _Figure, scale: float = 100.0, digits: int = 1) -> str:
        return Mean.of([figure(f) for f in found.values()]).shown(scale, digits)

    baseline = next((each for other, each in grid.items() if other.name == BASELINE), {})
    common = [seed for seed in found if seed in baseline]
    ratios = [found[s].processor_s / baseline[s].processor_s for s in common]
    return [
        row.name,
        mean(lambda f: f.last),
        mean(lambda f: f.half),
        mean(lambda f: f.layers, 1.0, 2),
        f"{100 * Mean.of([f.other for f in found.values()]).value:.1f}",
        f"{Mean.of(ratios).value:.2f}" if ratios else "-",
    ]


def _gap(figure: _Figure, found: Mapping[int, Figures], baseline: Mapping[int, Figures]) -> Mean:
    seeds = sorted(found.keys() & baseline.keys())
    return difference([figure(found[s]) for s in seeds], [figure(baseline[s]) for s in seeds])


def _differences(gaps: Mapping[str, Sequence[Mean]]) -> Iterator[str]:
    """Yield a line for each figure."""
    yield (
        f"Against `{BASELINE}`, seed by seed (of {len(gaps) * len(_COMPARED)} comparisons, one in "
        "twenty shows a difference by chance):"
    )
    for place, compared in enumerate(_COMPARED):
        shown = {name: found[place] for name, found in gaps.items() if found[place].differs}
        better = {name: g for name, g in shown.items() if (g.value < 0) == compared.less}
        worse = {name: g for name, g in shown.items() if name not in better}
        words = (
            f"better are {_named(better, compared)}; worse are {_named(worse, compared)}."
            if shown
            else "no difference is shown."
        )
        yield f"* {compared.place}: {words}"


def _named(gaps: Mapping[str, Mean], compared: _Compared) -> str:
    digits = 1 if compared.scale > 1 else 2
    found = [f"{n} ({_signed(g, compared, digits)}{compared.unit})" for n, g in gaps.items()]
    return listed(found) or "none"


def _signed(gap: Mean, compared: _Compared, digits: int) -> str:
    return f"{'+' if gap.value > 0 else ''}{gap.shown(compared.scale, digits)}"
