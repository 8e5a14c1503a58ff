"""Sun et al. 2021: exits trained to differ from each other, under patience and voting."""

from collections.abc import Mapping, Sequence

from models.experiments.figures import Mean, difference
from models.experiments.recipe_table import Row
from models.experiments.recipes import run_of
from models.experiments.run import SEEDS, DataName, Run
from models.experiments.section import Context, Section
from models.experiments.sections.patience import NAMES, SPEED, VOTING, at_speed
from models.quality.page import table
from models.quality.rule_families import ENTROPY, PATIENCE

DATA: tuple[DataName, ...] = ("sst2", "mrpc")
JOINT, DIVERSE = Row("joint"), Row("diversity 0.1", ("--diversity", "0.1"))
RULES = (ENTROPY, PATIENCE, VOTING)

_ABOUT = (
    f"Accuracy at {SPEED} times fewer layers of MiniLM's six, trained with diversity of weight "
    "0.1, less that of `joint`, in points, seed by seed. One weight is not enough to judge the "
    "method: Sun et al. state none."
)


def write(context: Context) -> str:
    """Return the table, and how many of its cells show a change."""
    columns = [
        compared(*(_scores(context, row, data) for row in (JOINT, DIVERSE))) for data in DATA
    ]
    names = [NAMES[rule] for rule in RULES]
    rows = [
        [name, *(gap.shown(digits=2) for gap in gaps)]
        for name, *gaps in zip(names, *columns, strict=True)
    ]
    shown = sum(gap.differs for gaps in columns for gap in gaps)
    words = f"A change is shown in {shown} of {len(DATA) * len(RULES)} cells."
    return "\n\n".join([_ABOUT, table(["rule", *DATA], rows), words])


def _runs(row: Row, data: DataName) -> list[Run]:
    return [run_of(row, seed, data) for seed in SEEDS]


SECTION = Section(
    "Diversity of exits",
    tuple(run for data in DATA for row in (JOINT, DIVERSE) for run in _runs(row, data)),
    write,
)


def compared(
    plain: Mapping[str, Sequence[float]], diverse: Mapping[str, Sequence[float]]
) -> list[Mean]:
    """Return each rule's difference.

    Args:
        plain: accuracy by rule, one per seed.
        diverse: of the same seeds.
    """
    return [difference(diverse[rule], plain[rule]) for rule in RULES]


def _scores(context: Context, row: Row, data: DataName) -> dict[str, list[float]]:
    found = [at_speed(context.recorded(run)) for run in _runs(row, data)]
    return {rule: [each[rule].score.value for each in found] for rule in RULES}
