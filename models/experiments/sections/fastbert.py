"""FastBERT (Liu et al. 2020): operations and accuracy at three speeds, heads without labels."""

from collections.abc import Sequence
from typing import NamedTuple

from models.experiments.figures import Mean
from models.experiments.run import Run
from models.experiments.section import Context, Section
from models.experiments.sections.tried import Tried
from models.quality.costs import MFLOPS_LINEAR, Costs
from models.quality.page import table
from models.quality.recorded import Recorded
from serve.rules import ExitRule, NeverRule, NormalizedEntropyRule

SPEEDS = (0.1, 0.5, 0.8)
_OPTIONS = ("--recipe", "frozen", "--distill", "1", "--unlabelled", "--head", "attention")
_TEACHER = Run("one-exit", "agnews", options=("--exits", "6"))
RUNS = Run.with_seeds("fastbert", "agnews", options=_OPTIONS, start=_TEACHER)

_ABOUT = (
    "MiniLM with six layers: the last exit is trained with labels, then earlier heads of "
    "FastBERT's form alone, from its answers. A text leaves where its normalized entropy is "
    "below the speed. MFLOPs are of linear layers alone, as FastBERT counts. It reports, with "
    "the twelve layers of BERT-base, 94.47 % at full depth and 93.14 % with 10.33 times fewer "
    "operations."
)
_HEAD = ["speed", "accuracy %", "mean layers", "MFLOPs, linear layers", "times fewer"]


class AtSpeed(NamedTuple):
    """A model at one speed.

    Attributes:
        accuracy: of all texts.
        layers: mean.
        linear: mean MFLOPs of a text, of linear layers alone.
        fewer: full depth's linear MFLOPs, without any earlier head, by these.
    """

    accuracy: float
    layers: float
    linear: float
    fewer: float


def write(context: Context) -> str:
    """Return the table and a sentence."""
    models = [at_speeds(context.recorded(run), context.costs(run)) for run in RUNS]
    rows = [
        [f"{speed:g}" if speed else "0 (all layers)", *_cells([model[place] for model in models])]
        for place, speed in enumerate((0.0, *SPEEDS))
    ]
    return "\n\n".join([_ABOUT, table(_HEAD, rows), sentence(models)])


SECTION = Section("FastBERT: operations at three speeds on AG News", RUNS, write)


def at_speeds(recorded: Recorded, costs: Costs) -> list[AtSpeed]:
    """Return a model's figures without early exit, and at each speed."""
    rules: list[ExitRule] = [NeverRule()]
    rules += [NormalizedEntropyRule(threshold=speed) for speed in SPEEDS]
    tried = Tried(recorded, {"speed": rules}, costs)
    points = tried.points["speed"]
    full = points[0].costs[MFLOPS_LINEAR]
    return [
        AtSpeed(
            point.value,
            float(point.layers.mean()),
            point.costs[MFLOPS_LINEAR],
            full / point.costs[MFLOPS_LINEAR],
        )
        for point in points
    ]


def sentence(models: Sequence[Sequence[AtSpeed]]) -> str:
    """Return what the middle speed costs and saves."""
    place = 1 + len(SPEEDS) // 2
    lost = Mean.of([model[place].accuracy - model[0].accuracy for model in models])
    fewer = Mean.of([model[place].fewer for model in models])
    verdict = "shown" if lost.differs else "not shown"
    return (
        f"At speed {SPEEDS[place - 1]:g} a text takes {fewer.shown(1.0)} times fewer operations. "
        f"Accuracy less full depth's is {lost.shown(digits=2)} points; a difference is {verdict}."
    )


def _cells(seeds: Sequence[AtSpeed]) -> list[str]:
    def mean(values: Sequence[float], scale: float, digits: int) -> str:
        return Mean.of(values).shown(scale, digits)

    accuracy, layers, linear, fewer = zip(*seeds, strict=True)
    return [
        mean(accuracy, 100.0, 1),
        mean(layers, 1.0, 2),
        mean(linear, 1.0, 0),
        mean(fewer, 1.0, 2),
    ]
