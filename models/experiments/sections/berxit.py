"""BERxiT (Xin et al. 2021): similarity of sentences, which leave by their predicted error."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from models.experiments.figures import Mean
from models.experiments.run import SEEDS, Run
from models.experiments.section import Context, Section
from models.experiments.sections.tried import Tried
from models.quality.page import table
from models.quality.points import STATIC
from models.quality.recorded import Recorded
from models.quality.rule_families import LEARNED, PATIENCE, rule_families
from models.quality.style import COLOURS, STATIC_COLOUR, STYLE, legend_below, new_figure

RECIPES = {
    "joint": Run.with_seeds("learn-error", "stsb", options=("--learn-error",)),
    "alternating": Run.with_seeds(
        "recipe-alternating-learn-error",
        "stsb",
        options=("--recipe", "alternating", "--learn-error"),
    ),
}
# Shares of the depth at which rules are compared.
SHARES = (1 / 2, 2 / 3, 5 / 6)
NAMES = {
    STATIC: "stop at the same layer",
    PATIENCE: "patience (PABEE)",
    LEARNED: "learned error (BERxiT)",
}

_ABOUT = (
    "Pearson's correlation x 100 on STS-B at three mean depths, MiniLM with six exits. "
    "Patience is 1, and its tolerance varies; BERxiT tunes both. Patience k - 1 with a large "
    "tolerance stops at layer k, so tuned patience is at least as good as stopping at the "
    "same layer, on the texts that tune it."
)
_CAPTION = "STS-B: correlation against mean layers, the mean of the seeds."
# (rules' mean depths, metrics) on a grid.
_Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


class AtDepths(NamedTuple):
    """One model's rules at the depths that are compared.

    Attributes:
        scores: (depths,) by rule; NaN where the rule does not reach.
        curves: depths and metrics of each rule's points, by rule.
    """

    scores: Mapping[str, NDArray[np.float64]]
    curves: Mapping[str, _Curve]


def write(context: Context) -> str:
    """Return the table, a sentence and the picture."""
    found = {
        recipe: [at_depths(context.recorded(run)) for run in runs]
        for recipe, runs in RECIPES.items()
    }
    head = ["recipe", "rule", *(f"at {share:.0%} of the layers" for share in SHARES)]
    rows = [
        [recipe, NAMES[rule], *(_mean(values) for values in _by_share(rule, models))]
        for recipe, models in found.items()
        for rule in NAMES
    ]
    picture = context.picture("berxit", drawn(found), _CAPTION)
    return "\n\n".join([_ABOUT, table(head, rows), sentence(found), picture])


SECTION = Section(
    "BERxiT: learned exits on STS-B",
    tuple(run for place in range(len(SEEDS)) for run in (r[place] for r in RECIPES.values())),
    write,
)


def at_depths(recorded: Recorded) -> AtDepths:
    """Try the three rules on one model."""
    families = rule_families(recorded)
    tried = Tried(recorded, {name: families[name] for name in NAMES if name != STATIC})
    scores, curves = {}, {}
    for name, points in tried.points.items():
        found = [tried.at(name, tried.depth * share) for share in SHARES]
        scores[name] = np.array([np.nan if each is None else each.value for each in found])
        places = sorted((float(point.layers.mean()), point.value) for point in points)
        depths, values = np.array(places).T
        curves[name] = depths, values
    return AtDepths(scores, curves)


def sentence(found: Mapping[str, Sequence[AtDepths]]) -> str:
    """Return in how many cells a fixed layer beats the learned error, by the means of the seeds."""
    means = [
        [_by_share(rule, models).mean(axis=1) for rule in (STATIC, LEARNED)]
        for models in found.values()
    ]
    static, learned = np.concatenate(means, axis=1)
    known = np.isfinite(static) & np.isfinite(learned)
    wins = int((static > learned)[known].sum())
    return (
        f"By the mean, stopping at the same layer beats the learned error in {wins} of "
        f"{known.sum()} cells of this table. A gain of the learned error over tuned patience is "
        "not shown."
    )


def drawn(found: Mapping[str, Sequence[AtDepths]]) -> Figure:
    """Draw a panel for each recipe: the mean over the seeds of each rule's curve."""
    with mpl.rc_context(STYLE):
        figure = new_figure((9.0, 3.9))
        panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
        for axes, (recipe, models) in zip(panels, found.items(), strict=True):
            for colour, rule in zip((STATIC_COLOUR, *COLOURS), NAMES, strict=False):
                depths, values = _mean_curve([each.curves[rule] for each in models])
                style = "--" if rule == STATIC else "-"
                axes.plot(depths, 100 * values, style, color=colour, label=NAMES[rule])
            axes.set_title(recipe)
            axes.set_xlabel("mean layers per text")
        panels[0].set_ylabel("Pearson x 100")
        legend_below(figure, panels[0])
    return figure


def _mean_curve(curves: Sequence[_Curve]) -> _Curve:
    """Return the mean of curves over the depths that all of them cover."""
    low = max(depths[0] for depths, _ in curves)
    high = min(depths[-1] for depths, _ in curves)
    grid = np.linspace(low, high, 101)
    return grid, np.mean([np.interp(grid, *curve) for curve in curves], axis=0)


def _by_share(rule: str, models: Sequence[AtDepths]) -> NDArray[np.float64]:
    """Return (depths, models) a rule's metric."""
    return np.stack([model.scores[rule] for model in models], axis=1)


def _mean(values: Sequence[float]) -> str:
    return Mean.of(values).shown() if np.isfinite(values).all() else "-"
