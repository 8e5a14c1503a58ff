"""How far the scores of early answers lie from full depth's."""

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from models.quality.analysis import Analysis
from models.quality.card import hundredths
from models.quality.points import PROFILES
from models.quality.recorded import shown_scores
from models.report.markdown import Block, Picture, table
from models.report.parts.part import Part, missing
from models.report.style import RIGHT, STATIC_COLOUR, as_svg, new_figure, spread
from serve.classifier.score_map import ScoreMap
from serve.policy.ladder import SCORE_TOLERANCE

TITLE = "Scores"
BOUNDS = (0.5, 0.8, 0.9, 0.95)
_SCALES = {
    "full_depth": "The calibration maps each exit's scores to full depth's, by a temperature that "
    "was fitted on the texts which chose the rules.",
    "raw": "No calibration maps the scores: they are the exits' own.",
}
_PARTS = {
    "single_label": "A text's score is that of its label.",
    "multi_label": "There is a score for every label of a text.",
    "token": "There is a score for every token that counts, that of its tag.",
}
_CAPTION = (
    "Scores if all texts left at the exit, and full depth's scores of the same answers. On the "
    "dotted line they are equal."
)
_MOST_PANELS, _MOST_DOTS = 3, 600


class Scores(NamedTuple):
    """Scores that texts leave with, beside full depth's of the same answers.

    Attributes:
        difference: mean distance of the two.
        far: share of the scores that are further than `SCORE_TOLERANCE` from full depth's.
        above: by bound, the share of the scores that reach it, and of full depth's.
    """

    difference: float
    far: float
    above: dict[str, tuple[float, float]]


def scores_part(analysis: Analysis, slug: str) -> Part:
    """Return the scores by the profiles, and at every exit if all texts left there."""
    recorded, ladder = analysis.recorded, analysis.model.ladder
    if recorded.traits.task == "regression":
        return missing(TITLE, "a regression gives no probabilities")
    if len(analysis.exits) < 2:
        return missing(TITLE, "the model has a single exit")
    scores = ScoreMap(ladder.score_temperatures if ladder else None)
    pair, rows = shown_scores(recorded, scores), np.arange(recorded.num_rows)
    found = {}
    for point in analysis.points.get(PROFILES, []):
        heads = recorded.taken(point.rule).heads
        found[f"{point.name}: {point.rule.text()}"] = compared(pair[:, heads, rows])
    for index, layer in enumerate(analysis.exits):
        found[f"all at layer {layer}"] = compared(pair[:, index])
    words = f"{_SCALES[scores.score_scale]} {_PARTS[recorded.traits.task]}"
    picture = Picture(f"{slug}-scores.svg", _CAPTION, as_svg(_drawn(pair, analysis.exits)))
    figures = {name: each._asdict() for name, each in found.items()}
    blocks: list[Block] = [words, _table(found), picture]
    return Part(TITLE, blocks, {"score_scale": scores.score_scale, "scores": figures})


def compared(pair: NDArray[np.float32]) -> Scores:
    """Return figures of scores and full depth's, (2, ...); NaN is left out."""
    own, full = pair[:, np.isfinite(pair).all(axis=0)].astype(np.float64)
    gaps = np.abs(own - full)
    above = {f"{b:g}": (float((own >= b).mean()), float((full >= b).mean())) for b in BOUNDS}
    return Scores(float(gaps.mean()), float((gaps > SCORE_TOLERANCE).mean()), above)


def _table(found: dict[str, Scores]) -> str:
    head = ["texts leave", "mean difference", f"further than {SCORE_TOLERANCE:g}, %"]
    head += [f"at least {bound:g}, % (full depth)" for bound in BOUNDS]
    rows = []
    for name, (difference, far, above) in found.items():
        shares = [f"{100 * own:.1f} ({100 * full:.1f})" for own, full in above.values()]
        rows.append([name, f"{difference:.3f}", hundredths(far), *shares])
    return table(head, rows)


def _drawn(pair: NDArray[np.float32], exits: tuple[int, ...]) -> Figure:
    """Draw scores against full depth's at up to three exits, in a panel each."""
    early = spread(len(exits) - 1, _MOST_PANELS)
    figure = new_figure((3.0 * len(early) + 0.4, 3.1))
    panels = figure.subplots(1, len(early), sharex=True, sharey=True, squeeze=False)[0]
    for axes, index in zip(panels, early, strict=True):
        own, full = pair[:, index].reshape(2, -1)
        kept = np.flatnonzero(np.isfinite(own))
        kept = kept[:: max(1, len(kept) // _MOST_DOTS)]
        axes.plot([0, 1], [0, 1], ":", color=STATIC_COLOUR, linewidth=1)
        axes.scatter(full[kept], own[kept], s=7, color=RIGHT, alpha=0.35, linewidths=0)
        axes.set_title(f"exit {exits[index]}", fontsize=10)
        axes.set_xlabel("full depth's score")
    panels[0].set_ylabel("score at the exit")
    return figure
