"""Sun et al. 2021: exits trained to differ from each other, under patience and voting."""

from collections.abc import Mapping, Sequence

from models.experiments.figures import Mean, difference
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
    f"Accuracy in % at {SPEED} times fewer layers of MiniLM's six, trained plainly and with "
    "diversity of weight 0.1, three seeds each. Sun et al. report for ALBERT-base, as the mean of "
    "GLUE's dev sets: patience 82.8, patience with diversity 83.5, voting 83.7."
)
_HEAD = ["data", "rule", "joint", "with diversity", "difference by seed, points"]


def write(context: Context) -> str:
    """Return the table, and a sentence on what diversity does."""
    rows, sentences = list[list[str]](), []
    for data in DATA:
        plain, diverse = (_scores(context, row, data) for row in (JOINT, DIVERSE))
        rows += [[data, *cells] for cells in compared(plain, diverse)]
        sentences.append(sentence(data, plain, diverse))
    return "\n\n".join([_ABOUT, table(_HEAD, rows), " ".join(sentences)])


def _runs(row: Row, data: DataName) -> list[Run]:
    return [run_of(row, seed, data) for seed in SEEDS]


SECTION = Section(
    "Diversity of exits",
    tuple(run for data in DATA for row in (JOINT, DIVERSE) for run in _runs(row, data)),
    write,
)


def compared(
    plain: Mapping[str, Sequence[float]], diverse: Mapping[str, Sequence[float]]
) -> list[list[str]]:
    """Return the cells of each rule's row.

    Args:
        plain: accuracy by rule, one per seed.
        diverse: of the same seeds.
    """
    return [
        [
            NAMES[rule],
            Mean.of(plain[rule]).shown(),
            Mean.of(diverse[rule]).shown(),
            difference(diverse[rule], plain[rule]).shown(digits=2),
        ]
        for rule in RULES
    ]


def sentence(
    data: DataName, plain: Mapping[str, Sequence[float]], diverse: Mapping[str, Sequence[float]]
) -> str:
    """Return for which rules a difference is shown."""
    gaps = {NAMES[rule]: difference(diverse[rule], plain[rule]) for rule in RULES}
    shown = {name: gap for name, gap in gaps.items() if gap.differs}
    if not shown:
        return f"On {data} diversity is not shown to change the accuracy under any of the rules."
    found = listed(f"{name} ({gap.shown(digits=2)} points)" for name, gap in shown.items())
    return f"On {data} diversity is shown to change the accuracy under {found}."


def _scores(context: Context, row: Row, data: DataName) -> dict[str, list[float]]:
    found = [at_speed(context.recorded(run)) for run in _runs(row, data)]
    return {rule: [each[rule].score.value for each in found] for rule in RULES}
