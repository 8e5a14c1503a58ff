"""All recipes beside each other: the same data, passes and seeds for each."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from models.experiments.context import Context
from models.experiments.figures import Column, Figure, by_column, table, verdict
from models.experiments.page import Section
from models.experiments.run import BUDGETS, DEPTHS, ENCODERS, DataName, EncoderName, Run
from models.experiments.training import processor_seconds
from models.experiments.tried import Tried, layers_within
from models.quality.recorded import Recorded
from models.quality.rule_families import ENTROPY, LEARNED, rule_families

BASELINE = "joint"
# Share of other answers than at full depth, at which depths are compared.
SHARE = 0.01
COLUMNS = (
    Column("last exit"),
    Column("half depth"),
    Column("layers at 1 %", 1.0, 2),
    Column("% other there"),
    Column("time", 1.0, 2),
)


class Recipe(NamedTuple):
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


# Recipes that train everything at once, with as many passes as the budget says.
ROWS = (
    Recipe(BASELINE),
    Recipe("joint, distilled", ("--distill", "1")),
    Recipe("alternating", ("--recipe", "alternating")),
    Recipe("gradient-equilibrium", ("--recipe", "gradient-equilibrium")),
    Recipe("weights sum", ("--exit-weights", "sum")),
    Recipe("weights descending", ("--exit-weights", "descending")),
    Recipe("weights shallow-deep", ("--exit-weights", "shallow-deep")),
    Recipe("grouped", ("--recipe", "grouped")),
    Recipe("learned error", ("--learn-error",)),
    Recipe("learned error, by it", ("--learn-error",), LEARNED),
)

# Recipes of two stages pass over the data twice in each, and `joint` as often in all. `frozen`'s
# first stage is the training of a classifier without exits.
STAGE_PASSES = 2
STAGES = (
    Recipe(BASELINE, ("--epochs", str(2 * STAGE_PASSES))),
    Recipe("two-stage", ("--recipe", "two-stage", "--epochs", str(STAGE_PASSES))),
    Recipe("mixed", ("--recipe", "mixed", "--epochs", str(STAGE_PASSES))),
    Recipe("frozen", ("--recipe", "frozen", "--epochs", str(STAGE_PASSES)), frozen=True),
)

# Recipes that are tried on twelve layers too: the baseline, and of those that train in one pass the
# two that are most accurate at half depth over both tables.
BEST = tuple(
    row for row in ROWS if row.name in (BASELINE, "gradient-equilibrium", "weights shallow-deep")
)


def runs_of(
    options: Sequence[str], data: DataName, encoder: EncoderName = "minilm", frozen: bool = False
) -> tuple[Run, ...]:
    """Return a recipe's run of each seed; recipes that differ in the rule alone share a model."""
    start = None
    if frozen:
        start = Run("one-exit", data, encoder, ("--exits", str(DEPTHS[encoder])))
    name = "-".join(options).replace("--", "") or BASELINE
    return Run(name, data, encoder, tuple(options), start=start).with_seeds()


def section(
    title: str,
    data: DataName,
    encoder: EncoderName = "minilm",
    rows: Sequence[Recipe] = ROWS,
    passes: int | None = None,
) -> Section:
    """Return a section with a table of recipes, each with as many passes over the data."""
    runs = {row: runs_of(row.options, data, encoder, row.frozen) for row in rows}
    texts = ", ".join(f"`{name}`" for name in BUDGETS[data].measured)
    about = (
        f"`{ENCODERS[encoder].split('/')[0]}` on {BUDGETS[data].rows or 'all'} rows of {data}, "
        f"{passes or BUDGETS[data].epochs} passes in all, accuracy in % on {texts}."
    )
    by_seed = dict.fromkeys(run for seed in zip(*runs.values(), strict=True) for run in seed)
    return Section(title, about, partial(_write, runs=runs), tuple(by_seed))


def figures(recorded: Recorded, family: str) -> list[float]:
    """Return a model's figures for the columns, without its time."""
    tried = Tried(recorded, {family: rule_families(recorded)[family]}, samples=0)
    half = tried.at(family, tried.depth / 2)
    within = layers_within(recorded, family, SHARE)
    return [
        tried.full.value,
        float("nan") if half is None else half.value,
        within.layers,
        within.disagreement,
    ]


def recipe_table(grid: Mapping[str, list[Figure]]) -> Iterator[str]:
    """Yield the table, and what it shows against the baseline.

    Args:
        grid: by recipe, a figure for each column; of the time, seconds.
    """
    baseline = grid[BASELINE]
    rows = []
    for name, (*others, seconds) in grid.items():
        rows.append([name, *others, Figure(seconds.values / baseline[-1].values)])
    yield table(["recipe", *COLUMNS], rows)
    yield "\n".join(
        "* "
        + verdict(
            f"{column.head[0].upper()}{column.head[1:]}, less that of `{BASELINE}`",
            {n: found[place] - baseline[place] for n, found in grid.items() if n != BASELINE},
            column,
        )
        for place, column in enumerate(COLUMNS[:3])
    )


def _write(context: Context, runs: Mapping[Recipe, Sequence[Run]]) -> Iterator[str]:
    grid = {}
    for row, models in runs.items():
        found = [
            [*figures(context.measured(run).recorded, row.family), processor_seconds(run, context)]
            for run in models
        ]
        grid[row.name] = by_column(found)
    yield from recipe_table(grid)


RECIPES: Mapping[str, Section] = {
    "recipes-sst2": section("Recipes on SST-2, six layers", "sst2"),
    "recipes-mrpc": section("Recipes on MRPC, six layers", "mrpc"),
    "recipes-mpnet": section("Three recipes on SST-2, twelve layers", "sst2", "mpnet", BEST),
    "stages-sst2": section(
        "Two stages or one, on SST-2", "sst2", rows=STAGES, passes=2 * STAGE_PASSES
    ),
    "stages-mrpc": section(
        "Two stages or one, on MRPC", "mrpc", rows=STAGES, passes=2 * STAGE_PASSES
    ),
}
