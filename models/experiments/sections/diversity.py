"""Sun et al. 2021: exits trained to differ from each other, under patience and voting."""

from collections.abc import Sequence

from models.experiments.figures import Mean, difference
from models.experiments.recipe_table import BASELINE, Row
from models.experiments.recipes import run_of
from models.experiments.run import SEEDS, DataName, Run
from models.experiments.section import Context, Section
from models.experiments.sections.patience import NAMES, SPEED, VOTING, at_speed
from models.quality.page import table
from models.quality.rule_families import ENTROPY, PATIENCE

DATA: tuple[DataName, ...] = ("sst2", "mrpc")
# Sun et al. state no weight.
WEIGHTS = ("0.1", "0.3", "1")
RULES = (ENTROPY, PATIENCE, VOTING)

_ABOUT = (
    f"Accuracy at {SPEED} times fewer layers of MiniLM's six, trained with diversity of three "
    "weights, less that of `joint`, in points, seed by seed. Sun et al. state no weight."
)


def write(context: Context) -> str:
    """Return the table, and how many of its cells show a change."""
    gaps = {
        (weight, data): compared(_scores(context, None, data), _scores(context, weight, data))
        for data in DATA
        for weight in WEIGHTS
    }
    rows = [
        [weight, NAMES[rule], *(gaps[weight, data][place].shown(digits=2) for data in DATA)]
        for weight in WEIGHTS
        for place, rule in enumerate(RULES)
    ]
    every = [gap for found in gaps.values() for gap in found]
    better, worse = (sum(g.differs and g.value * sign > 0 for g in every) for sign in (1, -1))
    words = f"Of {len(every)} cells {better} show a gain and {worse} a loss."
    return "\n\n".join([_ABOUT, table(["weight", "rule", *DATA], rows), words])


def _runs(weight: str | None, data: DataName) -> list[Run]:
    row = Row(BASELINE, ("--diversity", weight) if weight else ())
    return [run_of(row, seed, data) for seed in SEEDS]


SECTION = Section(
    "Diversity of exits",
    tuple(run for data in DATA for weight in (None, *WEIGHTS) for run in _runs(weight, data)),
    write,
)


def compared(plain: Sequence[Sequence[float]], diverse: Sequence[Sequence[float]]) -> list[Mean]:
    """Return each rule's difference.

    Args:
        plain: accuracy by rule, one per seed.
        diverse: of the same seeds.
    """
    return [difference(one, other) for one, other in zip(diverse, plain, strict=True)]


def _scores(context: Context, weight: str | None, data: DataName) -> list[list[float]]:
    found = [at_speed(context.recorded(run)) for run in _runs(weight, data)]
    return [[each[rule].score.value for each in found] for rule in RULES]
