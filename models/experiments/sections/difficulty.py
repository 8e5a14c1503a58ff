"""Which texts are difficult, and what running on does to the easy ones (Kaya et al. 2019)."""

import numpy as np
from numpy.typing import NDArray

from models.experiments.figures import Mean
from models.experiments.recipe_table import BASELINE, Row
from models.experiments.recipes import run_of
from models.experiments.run import SEEDS, DataName, Run
from models.experiments.section import Context, Section
from models.quality.page import table
from models.quality.recorded import Recorded
from models.quality.report.exits import overthinking

DATA: tuple[DataName, ...] = ("sst2", "mrpc", "rte")

_ABOUT = (
    "MiniLM trained by `joint`. A text is overthought if an earlier exit has it right and the last "
    "one wrong, and rescued if only the last one has it right. *By chance* is the share of "
    "overthought texts, if every exit had as many texts right as it has, but independently of the "
    "other exits. The oracle lets every text leave at the first exit that has it right; *best "
    "exit* is the accuracy of the best fixed layer. A text is settled at the first layer from "
    "which all exits give full depth's answer."
)
_HEAD = [
    "data",
    "full depth %",
    "best exit %",
    "oracle %",
    "oracle's layers",
    "overthought %",
    "by chance %",
    "rescued %",
    "settled at the first exit %",
    "after half depth %",
]


def _runs(data: DataName) -> list[Run]:
    return [run_of(Row(BASELINE), seed, data) for seed in SEEDS]


def write(context: Context) -> str:
    """Return a table with a row for each data set, and what it shows of overthinking."""
    rows, sentences = list[list[str]](), list[str]()
    for data in DATA:
        found = [figures(context.recorded(run)) for run in _runs(data)]
        means = {name: Mean.of([each[name] for each in found]) for name in found[0]}
        layers = "oracle's layers"
        rows.append(
            [
                data,
                *(m.shown(1.0, 2) if n == layers else m.shown() for n, m in means.items()),
            ]
        )
        sentences.append(sentence(data, found))
    return "\n\n".join([_ABOUT, table(_HEAD, rows), " ".join(sentences)])


SECTION = Section(
    "Difficulty and overthinking", tuple(run for data in DATA for run in _runs(data)), write
)


def figures(recorded: Recorded) -> dict[str, float]:
    """Return a model's figures in the order of the table's columns."""
    right = recorded.right
    assert right is not None
    found = overthinking(right, recorded.traits.exits)
    early, late = settled(recorded)
    return {
        "full depth": found.full_accuracy,
        "best exit": float(right.mean(axis=1).max()),
        "oracle": found.oracle_accuracy,
        "oracle's layers": found.oracle_depth,
        "overthought": found.overthought,
        "by chance": by_chance(right),
        "rescued": found.rescued,
        "settled first": early,
        "settled late": late,
    }


def by_chance(right: NDArray[np.bool_]) -> float:
    """Return the share of texts that exits which err independently would overthink.

    Args:
        right: (exits, rows) whether an answer is correct.
    """
    wrong = 1 - right.mean(axis=1)
    return float(wrong[-1] * (1 - wrong[:-1].prod()))


def sentence(data: DataName, found: list[dict[str, float]]) -> str:
    """Return whether more texts are overthought than by chance, and whether stopping pays."""
    over = Mean.of([each["overthought"] - each["by chance"] for each in found])
    gain = Mean.of([each["best exit"] - each["full depth"] for each in found])
    more = "more" if over.value > 0 else "fewer"
    said = f"{more} texts are overthought than by chance" if over.differs else "no more than chance"
    return (
        f"On {data} {said} ({over.shown()} points); the best fixed layer is {gain.shown()} points "
        "above full depth."
    )


def settled(recorded: Recorded) -> tuple[float, float]:
    """Return the shares of texts settled at the first exit, and after half of the layers."""
    exits = np.array(recorded.traits.exits)
    layers = exits[settled_at(recorded.same())]
    return float((layers == exits[0]).mean()), float((layers > exits[-1] / 2).mean())


def settled_at(same: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return (rows,) the first exit from which all answers are the last one's.

    Args:
        same: (exits, rows) whether an exit gives the last one's answer.
    """
    from_here = np.logical_and.accumulate(same[::-1], axis=0)[::-1]
    found: NDArray[np.intp] = from_here.argmax(axis=0)
    return found
