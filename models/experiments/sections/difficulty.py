"""Which texts are difficult, and what running on does to the easy ones (Kaya et al. 2019)."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from models.experiments.context import Context
from models.experiments.figures import Column, Figure, by_column, table, verdict
from models.experiments.page import Section
from models.experiments.run import DataName
from models.experiments.sections.recipes import runs_of
from models.quality.recorded import Recorded
from models.quality.report.exits import overthinking

DATA: tuple[DataName, ...] = ("sst2", "mrpc", "rte")
_RUNS = {data: runs_of((), data) for data in DATA}

_ABOUT = (
    "MiniLM trained by `joint`. A text is overthought if an earlier exit has it right and the last "
    "one wrong, and rescued if only the last one has it right. *By chance* is the share of "
    "overthought texts, if every exit had as many texts right as it has, but independently of the "
    "other exits. The oracle lets every text leave at the first exit that has it right; *best "
    "exit* is the accuracy of the best fixed layer. A text is settled at the first layer from "
    "which all exits give full depth's answer."
)
COLUMNS = (
    Column("full depth %"),
    Column("best exit %"),
    Column("oracle %"),
    Column("oracle's layers", 1.0, 2),
    Column("overthought %"),
    Column("by chance %"),
    Column("rescued %"),
    Column("settled at the first exit %"),
    Column("after half depth %"),
)


def write(context: Context) -> Iterator[str]:
    """Yield a table with a row for each data set, and what it shows of overthinking."""
    found = {
        data: by_column([figures(context.measured(run).recorded) for run in runs])
        for data, runs in _RUNS.items()
    }
    yield table(["data", *COLUMNS], [[data, *each] for data, each in found.items()])
    over, gain = dict[str, Figure](), dict[str, Figure]()
    for data, (full, best, _, _, overthought, chance, *_) in found.items():
        over[data], gain[data] = overthought - chance, best - full
    yield verdict("Share of overthought texts, less that by chance", over, COLUMNS[0])
    yield verdict("Best fixed layer less full depth", gain, COLUMNS[0])


SECTION = Section(
    "Difficulty and overthinking", _ABOUT, write, tuple(r for runs in _RUNS.values() for r in runs)
)


def figures(recorded: Recorded) -> list[float]:
    """Return a model's figures for the columns."""
    right = recorded.right
    assert right is not None
    found = overthinking(right, recorded.traits.exits)
    exits = np.array(recorded.traits.exits)
    layers = exits[settled_at(recorded.same())]
    return [
        found.full_accuracy,
        float(right.mean(axis=1).max()),
        found.oracle_accuracy,
        found.oracle_depth,
        found.overthought,
        by_chance(right),
        found.rescued,
        float((layers == exits[0]).mean()),
        float((layers > exits[-1] / 2).mean()),
    ]


def by_chance(right: NDArray[np.bool_]) -> float:
    """Return the share of texts that exits which err independently would overthink.

    Args:
        right: (exits, rows) whether an answer is correct.
    """
    wrong = 1 - right.mean(axis=1)
    return float(wrong[-1] * (1 - wrong[:-1].prod()))


def settled_at(same: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return (rows,) the first exit from which all answers are the last one's.

    Args:
        same: (exits, rows) whether an exit gives the last one's answer.
    """
    from_here = np.logical_and.accumulate(same[::-1], axis=0)[::-1]
    found: NDArray[np.intp] = from_here.argmax(axis=0)
    return found
