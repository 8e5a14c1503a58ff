"""Exit rules beside stopping every text at the same layer."""

from typing import Any

import numpy as np

from models.quality.analysis import Analysis
from models.quality.card import describe_loss, hundredths
from models.quality.costs import LAYERS, MFLOPS, MS
from models.quality.page import Block, Part, Picture, missing, table
from models.quality.points import LADDER, PROFILES, STATIC, Point, along
from models.quality.report.curves import draw_families
from models.quality.report.exits import UNITS
from models.quality.report.wording import (
    depths,
    gain_sentence,
    gain_text,
    interval,
    metric_title,
    no_family,
)
from models.quality.style import as_svg, spread
from serve.policy.ladder import Certificate, Ladder, Loss
from serve.policy.target import TargetChoice

TITLE = "Exit rules"
_MOST_FRONT = 8
_NOTHING = (
    "Nothing is certified for this variant, so profiles that ask for a bound run the whole model. "
    "`offramp calibrate` certifies rules."
)


def rules_part(analysis: Analysis, slug: str) -> Part:
    """Return curves, gains and chosen points."""
    if analysis.headline is None:
        return missing(TITLE, f"{no_family(analysis)}, so that no text can leave early")
    unknown = analysis.model.unknown
    blocks: list[Block] = [
        Picture(f"{slug}-rules.svg", _caption(analysis), as_svg(draw_families(analysis))),
        _gains(analysis),
        "The best points of all rules (Pareto front) were chosen on the rows on which they are "
        "measured, so they are slightly flattered. The gain is over the static line at the same "
        "mean depth.",
        _points(analysis),
        *terms(analysis),
        *(
            f"{name} are not known: {unknown[unit]}."
            for unit, name in ((MS, "Milliseconds"), (MFLOPS, "Operations"))
            if unit in unknown
        ),
    ]
    return Part(TITLE, blocks, _figures(analysis))


def gain_at(analysis: Analysis, point: Point) -> float:
    """Return how far a point lies above the static line."""
    static = analysis.points[STATIC]
    layers, values = np.array([(p.costs[LAYERS], p.value) for p in static]).T
    return point.value - float(along(np.array([point.costs[LAYERS]]), layers, values)[0])


def _gains(analysis: Analysis) -> str:
    rows = [
        [name, gain_text(found), depths(found), f"{100 * found.area:.2f}"]
        for name, found in analysis.gains.items()
    ]
    head = (
        "rule",
        f"mean gain in {metric_title(analysis)} (95 % interval)",
        "over mean depths",
        "area between the curves (x layers)",
    )
    return table(head, rows)


def _points(analysis: Analysis) -> str:
    """Return a table of the points that are worth a row: profiles, rungs, and the front."""
    front = analysis.front()
    chosen = [
        *((f"profile {point.name}", point) for point in analysis.points.get(PROFILES, [])),
        *(("rung", point) for point in analysis.points.get(LADDER, [])),
        *(("front", front[place]) for place in spread(len(front), _MOST_FRONT)),
    ]
    units = [unit for unit in (LAYERS, MS, MFLOPS) if unit in analysis.costs]
    losses = certified_losses(analysis)
    agreement = analysis.recorded.answers is not None
    head = ["", "rule", metric_title(analysis), "95 % interval", "gain"]
    head += ["same answer as full depth %"] if agreement else []
    head += [*(UNITS[unit] for unit in units), *losses.values()]
    rows = []
    for why, point in chosen:
        row: list[Any] = [why, point.rule.text(), hundredths(point.value)]
        row += [interval(point.interval), hundredths(gain_at(analysis, point), True)]
        row += [hundredths(1 - (point.disagreement or 0))] if agreement else []
        row += [point.costs[unit] for unit in units]
        row += [bound(point, loss) for loss in losses]
        rows.append(row)
    return table(head, rows)


def certified_losses(analysis: Analysis) -> dict[Loss, str]:
    """Return the losses that the ladder's certificates bound, with the titles of their columns."""
    ladder = analysis.model.ladder
    losses = sorted({c.loss for c in _certificates(ladder)})
    return {loss: f"certified %: {describe_loss(loss, ladder)}" for loss in losses if ladder}


def bound(point: Point, loss: Loss) -> str | None:
    """Return the bound of a point's certificate in percent, if it has one."""
    found = next((c for c in point.certificates if c.loss == loss), None)
    return f"{100 * found.epsilon:g}" if found else None


def terms(analysis: Analysis) -> list[str]:
    """Return how sure the certificates are, or that there are none where profiles want some."""
    certificates = _certificates(analysis.model.ladder)
    if not certificates:
        profiles = analysis.model.profiles
        named = (profiles[point.name] for point in analysis.points.get(PROFILES, []))
        return [_NOTHING] if any(isinstance(wish, TargetChoice) for wish in named) else []
    listed = ", ".join(dict.fromkeys(f"delta {c.delta:g} and n {c.n}" for c in certificates))
    return [
        "What is certified is the largest share on new texts of the same kind. The certificates "
        f"have {listed}: n texts certified each bound, which fails to hold with probability delta. "
        "Rules without a certificate promise nothing."
    ]


def _certificates(ladder: Ladder | None) -> list[Certificate]:
    return [c for rung in ladder.rungs for c in rung.certificates] if ladder else []


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


def _figures(analysis: Analysis) -> dict[str, Any]:
    front = {id(point) for point in analysis.front()}
    return {
        "sentence": gain_sentence(analysis),
        "family_to_judge_by": analysis.headline,
        "gains": {name: found._asdict() for name, found in analysis.gains.items()},
        "families": {
            name: [_figure(analysis, point, id(point) in front) for point in points]
            for name, points in analysis.points.items()
        },
    }


def _figure(analysis: Analysis, point: Point, best: bool) -> dict[str, Any]:
    return {
        "rule": point.rule.model_dump(mode="json", exclude_none=True),
        "name": point.name or None,
        "value": point.value,
        "metrics": point.metrics,
        "interval": point.interval,
        "gain_at_equal_depth": gain_at(analysis, point),
        "disagreement": point.disagreement,
        "exit_shares": point.exit_shares,
        "costs": point.costs,
        "on_the_front": best,
        "certificates": [c.model_dump(mode="json") for c in point.certificates],
    }
