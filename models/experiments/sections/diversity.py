"""Sun et al. 2021: exits trained to differ from each other, under patience and voting."""

from collections.abc import Mapping, Sequence

from models.experiments.figures import difference
from models.experiments.recipe_table import Row
from models.experiments.recipes import run_of
from models.experiments.run import SEEDS, DataName, Run
from models.experiments.section import Context, Section
from models.experiments.sections.patience import NAMES, SPEED, VOTING, at_speed
from models.quality.rule_families import ENTROPY, PATIENCE
from models.report.markdown import table
from serve.rules.traits import listed

DATA: tuple[DataName, ...] = ("sst2", "mrpc")
JOINT, DIVERSE = Row("joint"), Row("diversity 0.1", ("--diversity", "0.1"))
RULES = (ENTROPY, PATIENCE, VOTING)

_ABOUT = (
    f"Accuracy at {SPEED} times fewer layers of MiniLM's six, trained with diversity of weight "
    "0.1, less that of `joint`, in points, seed by seed. One weight is not enough to judge the "
    "method: Sun et al. state none."
)


def write(context: Context) -> str:
    """Return the table, and a sentence on what diversity does."""
    columns, sentences = list[list[str]](), []
    for data in DATA:
        plain, diverse = (_scores(context, row, data) for row in (JOINT, DIVERSE))
        columns.append(compared(plain, diverse))
        sentences.append(sentence(data, plain, diverse))
    names = [NAMES[rule] for rule in RULES]
    rows = zip(names, *columns, strict=True)
    return "\n\n".join([_ABOUT, table(["rule", *DATA], rows), " ".join(sentences)])


def _runs(row: Row, data: DataName) -> list[Run]:
    return [run_of(row, seed, data) for seed in SEEDS]


SECTION = Section(
    "Diversity of exits",
    tuple(run for data in DATA for row in (JOINT, DIVERSE) for run in _runs(row, data)),
    write,
)


def compared(
    plain: Mapping[str, Sequence[float]], diverse: Mapping[str, Sequence[float]]
) -> list[str]:
    """Return each rule's difference.

    Args:
        plain: accuracy by rule, one per seed.
        diverse: of the same seeds.
    """
    return [difference(diverse[rule], plain[rule]).shown(digits=2) for rule in RULES]


def sentence(
    data: DataName, plain: Mapping[str, Sequence[float]], diverse: Mapping[str, Sequence[float]]
) -> str:
    """Return for which rules a difference is shown."""
    gaps = {NAMES[rule]: difference(diverse[rule], plain[rule]) for rule in RULES}
    shown = {name: gap for name, gap in gaps.items() if gap.differs}
    if not shown:
        return f"On {data} this weight is not shown to change the accuracy under any of the rules."
    found = listed(f"{name} ({gap.shown(digits=2)} points)" for name, gap in shown.items())
    return f"On {data} diversity is shown to change the accuracy under {found}."


def _scores(context: Context, row: Row, data: DataName) -> dict[str, list[float]]:
    found = [at_speed(context.recorded(run)) for run in _runs(row, data)]
    return {rule: [each[rule].score.value for each in found] for rule in RULES}
