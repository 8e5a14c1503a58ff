"""The table of all recipes: the same data, passes and seeds for each."""

from collections.abc import Mapping, Sequence
from functools import partial

from models.experiments.budgets import BUDGETS, ENCODERS
from models.experiments.early_exit import at_depth, by_exit, layers_within
from models.experiments.recipe_table import BASELINE, Figures, Row, recipe_table, sentences
from models.experiments.run import SEEDS, DataName, EncoderName, Run
from models.experiments.section import Context, Section
from models.quality.recorded import Recorded
from models.quality.rule_families import LEARNED

DEPTHS: Mapping[EncoderName, int] = {"minilm": 6, "mpnet": 12}
# Share of other answers than at full depth, at which depths are compared.
SHARE = 0.01


# Recipes that train everything at once, with as many passes as the budget says.
ROWS = (
    Row("joint"),
    Row("joint, distilled", ("--distill", "1")),
    Row("alternating", ("--recipe", "alternating")),
    Row("gradient-equilibrium", ("--recipe", "gradient-equilibrium")),
    Row("weights sum", ("--exit-weights", "sum")),
    Row("weights descending", ("--exit-weights", "descending")),
    Row("weights shallow-deep", ("--exit-weights", "shallow-deep")),
    Row("grouped", ("--recipe", "grouped")),
    Row("learned error", ("--learn-error",)),
    Row("learned error, by it", ("--learn-error",), LEARNED),
)

# Recipes of two stages pass over the data twice in each, and `joint` as often in all. `frozen`'s
# first stage is the training of a classifier without exits.
STAGE_PASSES = 2
STAGES = (
    Row(BASELINE, ("--epochs", str(2 * STAGE_PASSES))),
    Row("two-stage", ("--recipe", "two-stage", "--epochs", str(STAGE_PASSES))),
    Row("mixed", ("--recipe", "mixed", "--epochs", str(STAGE_PASSES))),
    Row("frozen", ("--recipe", "frozen", "--epochs", str(STAGE_PASSES)), frozen=True),
)

# Recipes that are tried on twelve layers too: the baseline, and of those that train in one pass the
# two that are most accurate at half depth over both tables.
BEST = tuple(
    row for row in ROWS if row.name in (BASELINE, "gradient-equilibrium", "weights shallow-deep")
)


def run_of(row: Row, seed: int, data: DataName, encoder: EncoderName = "minilm") -> Run:
    """Return the run of a recipe; rows that differ in the rule alone have the same model."""
    start = None
    if row.frozen:
        start = Run("one-exit", data, encoder, ("--exits", str(DEPTHS[encoder])), seed)
    name = "-".join(row.options).replace("--", "") or BASELINE
    return Run(name, data, encoder, row.options, seed, start)


def section(
    heading: str,
    data: DataName,
    encoder: EncoderName = "minilm",
    rows: Sequence[Row] = ROWS,
    passes: int | None = None,
) -> Section:
    """Return a section with a table of recipes; seed after seed, so that a first table is soon.

    Args:
        heading: of the section.
        data: that the models are trained on.
        encoder: that they start from.
        rows: of the table.
        passes: over the data, of each of them; None for the budget's.
    """
    runs = dict.fromkeys(run_of(row, seed, data, encoder) for seed in SEEDS for row in rows)
    passes = passes or BUDGETS[data].epochs
    write = partial(_write, data=data, encoder=encoder, rows=rows, passes=passes)
    return Section(heading, tuple(runs), write, partial=True)


def figures(recorded: Recorded, family: str, processor_s: float) -> Figures:
    """Return a recipe's figures from what its exits say."""
    within = layers_within(recorded, family, SHARE)
    half = at_depth(recorded, family, recorded.traits.exits[-1] / 2)
    return Figures(by_exit(recorded), half, within.layers, within.disagreement, processor_s)


def _write(
    context: Context, data: DataName, encoder: EncoderName, rows: Sequence[Row], passes: int
) -> str:
    grid: dict[Row, dict[int, Figures]] = {}
    for row in rows:
        for seed in SEEDS:
            run = run_of(row, seed, data, encoder)
            if context.finished(run):
                found = figures(context.recorded(run), row.family, _processor_s(run, context))
                grid.setdefault(row, {})[seed] = found
    texts = ", ".join(f"`{path.parent.name}/{path.name}`" for path in context.data(data))
    about = (
        f"`{ENCODERS[encoder].split('/')[0]}` on {BUDGETS[data].rows or 'all'} rows of {data}, "
        f"{passes} passes in all, accuracy in % on {texts}."
    )
    return "\n\n".join([about, recipe_table(grid, DEPTHS[encoder]), *sentences(grid)])


def _processor_s(run: Run, context: Context) -> float:
    """Return the processor seconds of a run and of what it starts from."""
    before = _processor_s(run.start, context) if run.start else 0.0
    return before + context.seconds(run).processor


RECIPES_SST2 = section("Recipes on SST-2, six layers", "sst2")
RECIPES_MRPC = section("Recipes on MRPC, six layers", "mrpc")
STAGES_SST2 = section("Two stages or one, on SST-2", "sst2", rows=STAGES, passes=2 * STAGE_PASSES)
STAGES_MRPC = section("Two stages or one, on MRPC", "mrpc", rows=STAGES, passes=2 * STAGE_PASSES)
RECIPES_MPNET = section("Three recipes on SST-2, twelve layers", "sst2", "mpnet", BEST)
