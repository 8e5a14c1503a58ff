"""FastBERT (Liu et al. 2020): operations and accuracy at three speeds, heads without labels."""

from collections.abc import Iterator

import numpy as np

from models.experiments.context import Context
from models.experiments.figures import Column, by_column, table, verdict
from models.experiments.measured import Measured
from models.experiments.page import Section
from models.experiments.run import Run
from models.experiments.tried import Tried
from models.quality.costs import LAYERS, MFLOPS_LINEAR
from serve.rules import ExitRule, NeverRule, NormalizedEntropyRule

SPEEDS = (0.1, 0.5, 0.8)
_OPTIONS = ("--recipe", "frozen", "--distill", "1", "--unlabelled", "--head", "attention")
_TEACHER = Run("one-exit", "agnews", options=("--exits", "6"))
RUNS = Run("fastbert", "agnews", options=_OPTIONS, start=_TEACHER).with_seeds()

_ABOUT = (
    "MiniLM with six layers: the last exit is trained with labels, then earlier heads of "
    "FastBERT's form alone, from its answers. A text leaves where its normalized entropy is "
    "below the speed. MFLOPs are of linear layers alone, as FastBERT counts. It reports, with "
    "the twelve layers of BERT-base, 94.47 % at full depth and 93.14 % with 10.33 times fewer "
    "operations."
)
COLUMNS = (
    Column("accuracy %"),
    Column("mean layers", 1.0, 2),
    Column("MFLOPs, linear layers", 1.0, 0),
    Column("times fewer", 1.0, 2),
)


def write(context: Context) -> Iterator[str]:
    """Yield the table, and whether accuracy is shown to differ from full depth's."""
    models = np.array([at_speeds(context.measured(run)) for run in RUNS])
    found = {
        f"{speed:g}" if speed else "0 (all layers)": by_column(models[:, place])
        for place, speed in enumerate((0.0, *SPEEDS))
    }
    yield table(["speed", *COLUMNS], [[name, *figures] for name, figures in found.items()])
    full, *others = ((name, figures[0]) for name, figures in found.items())
    gaps = {f"speed {name}": accuracy - full[1] for name, accuracy in others}
    yield verdict("Accuracy less full depth's", gaps, Column("", digits=2))


SECTION = Section("FastBERT: operations at three speeds on AG News", _ABOUT, write, RUNS)


def at_speeds(measured: Measured) -> list[list[float]]:
    """Return a model's figures for the columns, without early exit and at each speed."""
    rules: list[ExitRule] = [NeverRule()]
    rules += [NormalizedEntropyRule(threshold=speed) for speed in SPEEDS]
    points = Tried(measured.recorded, {"speed": rules}, measured.costs, samples=0).points["speed"]
    full = points[0].costs[MFLOPS_LINEAR]
    return [
        [p.value, p.costs[LAYERS], p.costs[MFLOPS_LINEAR], full / p.costs[MFLOPS_LINEAR]]
        for p in points
    ]
