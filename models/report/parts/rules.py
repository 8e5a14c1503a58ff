"""Exit rules beside stopping every text at the same layer."""

from typing import Any

import numpy as np

from models.evaluation.analysis import Analysis
from models.evaluation.costs import LAYERS, MFLOPS, MFLOPS_LINEAR, MS
from models.evaluation.gain import Gain
from models.evaluation.operating_points import LADDER, PROFILES, STATIC, Point
from models.report.blocks import Block, Picture, Table, Text
from models.report.parts.certificates import bound, certified_losses, terms
from models.report.parts.part import Part, missing
from models.report.pictures.calibration import spread
from models.report.pictures.curves import draw_families, draw_gains
from models.report.rule_text import rule_text
from models.report.style import as_svg
from models.report.wording import depths, gain_text, headline, hundredths, interval, metric_title

TITLE = "Exit rules"
_MOST_FRONT = 8
_GAIN = (
    "How far each kind of rule lies above the dashed line, at the same mean depth. The shade is "
    "the 95 % interval of {family}."
)
UNITS = {LAYERS: "mean layers", MS: "ms", MFLOPS: "MFLOPs", MFLOPS_LINEAR: "MFLOPs, linear layers"}
_SHOWN = (LAYERS, MS, MFLOPS)


def rules_part(analysis: Analysis, slug: str) -> Part:
    """Return curves, gains and chosen points."""
    if analysis.headline is None:
        return missing(TITLE, "the model has a single exit, so no rule lets a text leave early")
    gain = _GAIN.format(family=analysis.headline)
    blocks: list[Block] = [
        Picture(f"{slug}-rules.svg", _caption(analysis), as_svg(draw_families(analysis))),
        Picture(f"{slug}-gain.svg", gain, as_svg(draw_gains(analysis))),
        _gains(analysis),
        Text(
            "The best points of all rules (Pareto front) were chosen on the rows on which they are "
            "measured, so they are slightly flattered. The gain is over the static line at the "
            "same mean depth."
        ),
        _points(analysis, _chosen(analysis)),
        *terms(analysis),
        *_notes(analysis),
    ]
    return Part(TITLE, blocks, _figures(analysis))


def costs_of(analysis: Analysis, point: Point) -> dict[str, float]:
    """Return a point's mean cost in every unit that is known."""
    return {unit: analysis.mean_cost(point, unit) for unit in analysis.observed.costs}


def gain_at(analysis: Analysis, point: Point) -> float:
    """Return how far a point lies above the static line."""
    static = analysis.points[STATIC]
    depths = [analysis.mean_cost(p, LAYERS) for p in static]
    values = [analysis.value(p) for p in static]
    at = float(np.interp(analysis.mean_cost(point, LAYERS), depths, values))
    return analysis.value(point) - at


def _chosen(analysis: Analysis) -> list[tuple[str, Point]]:
    """Return why and which points are worth a row: profiles, rungs, and the front."""
    front = analysis.front()
    best = [front[i] for i in spread(len(front), _MOST_FRONT)]
    return [
        *((f"profile {point.name}", point) for point in analysis.points.get(PROFILES, [])),
        *(("rung", point) for point in analysis.points.get(LADDER, [])),
        *(("front", point) for point in best),
    ]


def _gains(analysis: Analysis) -> Table:
    rows = [
        [
            name,
            gain_text(found),
            depths(found),
            f"{100 * found.area:.2f}",
        ]
        for name, found in analysis.gains.items()
    ]
    head = (
        "rule",
        f"mean gain in {metric_title(analysis)} (95 % interval)",
        "over mean depths",
        "area between the curves (x layers)",
    )
    return Table(head, rows)


def _points(analysis: Analysis, chosen: list[tuple[str, Point]]) -> Table:
    units = [unit for unit in _SHOWN if unit in analysis.observed.costs]
    losses = certified_losses(analysis)
    agreement = analysis.observed.answers is not None
    head = ["", "rule", metric_title(analysis), "95 % interval", "gain"]
    head += ["same answer as full depth %"] if agreement else []
    head += [*(UNITS[unit] for unit in units), *losses.values()]
    rows = []
    for why, point in chosen:
        row: list[Any] = [why, rule_text(point.rule), hundredths(analysis.value(point))]
        row += [interval(analysis.interval(point)), hundredths(gain_at(analysis, point), True)]
        row += [hundredths(1 - (point.disagreement or 0))] if agreement else []
        row += [analysis.mean_cost(point, unit) for unit in units]
        row += [bound(point, loss) for loss in losses]
        rows.append(row)
    return Table(head, rows)


def _caption(analysis: Analysis) -> str:
    words = [
        "Each curve is one kind of rule, from strict (right) to loose (left). The dashed line "
        "stops every text at the layer beside its marks; the grey one joins the best of all."
    ]
    if PROFILES in analysis.points:
        words.append("Stars are the policy's profiles.")
    if LADDER in analysis.points:
        words.append("Diamonds are the ladder's rungs, filled where they are certified.")
    return " ".join(words)


def _notes(analysis: Analysis) -> list[Text]:
    """Return which costs are not known."""
    unknown = analysis.observed.subject.unknown
    return [
        Text(f"{name} are not known: {unknown[unit]}.")
        for unit, name in ((MS, "Milliseconds"), (MFLOPS, "Operations"))
        if unit in unknown
    ]


def _figures(analysis: Analysis) -> dict[str, Any]:
    front = {id(point) for point in analysis.front()}
    return {
        "sentence": headline(analysis),
        "family_to_judge_by": analysis.headline,
        "gains": {name: _gain(found) for name, found in analysis.gains.items()},
        "families": {
            name: [_figure(analysis, point, id(point) in front) for point in points]
            for name, points in analysis.points.items()
        },
    }


def _gain(found: Gain) -> dict[str, Any]:
    ends = found.depths[0], found.depths[-1]
    return {"mean": found.mean, "interval": found.interval, "area": found.area, "depths": ends}


def _figure(analysis: Analysis, point: Point, best: bool) -> dict[str, Any]:
    return {
        "rule": point.rule.model_dump(mode="json", exclude_none=True),
        "name": point.name or None,
        "value": analysis.value(point),
        "interval": analysis.interval(point),
        "gain_at_equal_depth": gain_at(analysis, point),
        "disagreement": point.disagreement,
        "exit_shares": point.exit_shares(len(analysis.observed.traits.exits)),
        "costs": costs_of(analysis, point),
        "on_the_front": best,
        "certificates": [c.model_dump(mode="json") for c in point.certificates],
    }
