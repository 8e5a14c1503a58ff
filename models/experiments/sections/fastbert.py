"""FastBERT (Liu et al. 2020): operations and accuracy at three speeds, heads without labels."""

from collections.abc import Sequence
from typing import NamedTuple

from models.experiments.figures import Mean
from models.experiments.run import Run
from models.experiments.section import Context, Section
from models.experiments.sections.tried import Tried
from models.quality.costs import MFLOPS, MFLOPS_LINEAR, Costs
from models.quality.recorded import Recorded
from models.report.markdown import table
from serve.rules import ExitRule, NeverRule, NormalizedEntropyRule

SPEEDS = (0.1, 0.5, 0.8)
_OPTIONS = ("--recipe", "frozen", "--distill", "1", "--unlabelled", "--head", "attention")
_TEACHER = Run("one-exit", "agnews", options=("--exits", "6"))
RUNS = Run.with_seeds("fastbert", "agnews", options=_OPTIONS, start=_TEACHER)

_ABOUT = (
    "The last exit is trained with labels, then the earlier heads alone, on texts without labels, "
    "from its answers. The heads have FastBERT's form: attention over the tokens. A text leaves "
    "where its entropy, divided by that of equal probabilities, is below the speed. MiniLM with "
    "six layers on AG News, means over three seeds. MFLOPs are counted whole, as ELUE does, and "
    "of linear layers alone, as FastBERT does; `times fewer` is of the latter."
)
_HEAD = ["speed", "accuracy %", "mean layers", "MFLOPs", "MFLOPs, linear layers", "times fewer"]
# Linear layers alone, texts of 128 tokens.
_PUBLISHED = table(
    ["data", "speed", "accuracy %", "MFLOPs, linear layers", "times fewer"],
    [
        ["AG News", "0 (teacher)", "94.47", "21,785", "1.00"],
        ["AG News", None, "93.14", "2,108", "10.33"],
        ["Book review", "0 (teacher)", "86.88", "21,785", "1.00"],
        ["Book review", "0.5", "86.64", "5,171", "4.21"],
        ["ChnSentiCorp", "0.1", "95.25", "10,741", "2.02"],
        ["ChnSentiCorp", "0.5", None, "3,191", "6.82"],
        ["ChnSentiCorp", "0.8", "89.75", "2,315", "9.40"],
    ],
)


class AtSpeed(NamedTuple):
    """A model at one speed.

    Attributes:
        accuracy: of all texts.
        layers: mean.
        mflops: mean of a text, counted whole.
        linear: mean, of linear layers alone.
        fewer: full depth's linear MFLOPs, without any earlier head, by these.
    """

    accuracy: float
    layers: float
    mflops: float
    linear: float
    fewer: float


def write(context: Context) -> str:
    """Return our table, the published one and a sentence."""
    models = [at_speeds(context.recorded(run), context.costs(run)) for run in RUNS]
    rows = [
        [f"{speed:g}" if speed else "0 (all layers)", *_cells([model[place] for model in models])]
        for place, speed in enumerate((0.0, *SPEEDS))
    ]
    published = "Published, BERT-base with twelve layers:"
    return "\n\n".join([_ABOUT, table(_HEAD, rows), sentence(models), published, _PUBLISHED])


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
            point.costs[MFLOPS],
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

    accuracy, layers, mflops, linear, fewer = zip(*seeds, strict=True)
    return [
        mean(accuracy, 100.0, 1),
        mean(layers, 1.0, 2),
        mean(mflops, 1.0, 0),
        mean(linear, 1.0, 0),
        mean(fewer, 1.0, 2),
    ]
