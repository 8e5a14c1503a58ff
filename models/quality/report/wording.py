"""How figures are worded."""

import re

from models.quality.analysis import Analysis
from models.quality.card import hundredths, title, unit
from models.quality.costs import LAYERS
from models.quality.points import PROFILES, STATIC, Gain, Interval, Point
from serve.policy.target import TargetChoice
from serve.rules import NeverRule

_CORRELATION = "x 100"
_UNCERTIFIED = ", for nothing is certified: `offramp calibrate` certifies rules."


def metric_title(analysis: Analysis) -> str:
    """Return the main metric with its unit."""
    return f"{title(analysis.metric)} {unit(analysis.metric)}"


def interval(found: Interval, signed: bool = False) -> str:
    """Return an interval of a metric in hundredths."""
    return f"{hundredths(found.low, signed)} to {hundredths(found.high, signed)}"


def headline(analysis: Analysis) -> str:
    """Return in one sentence what requests without `exit` get: layers, metric, other answers.

    Where that is not known, it is the sentence on what early exit gains.
    """
    model, points = analysis.model, analysis.points.get(PROFILES, [])
    served = next((point for point in points if point.name == model.served), None)
    if analysis.headline is None or served is None:
        return gain_sentence(analysis)
    depth = analysis.exits[-1]
    begin = f"{model.name} on {analysis.data.name}: requests without `exit` ({model.served})"
    if served.rule == NeverRule():
        wish = model.profiles[served.name]
        uncertified = isinstance(wish, TargetChoice) and not model.ladder
        return f"{begin} run all {depth} layers{_UNCERTIFIED if uncertified else '.'}"
    differ = (
        "."
        if served.disagreement is None
        else f"; {hundredths(served.disagreement)} % of the answers are others than full depth's."
    )
    return (
        f"{begin} run {served.costs[LAYERS]:.2f} of {depth} layers in the mean, by "
        f"{served.rule.text()}; {title(analysis.metric)} is {hundredths(served.value)} instead of "
        f"{_with_unit(analysis, analysis.full)}{differ}"
    )


def no_family(analysis: Analysis) -> str:
    """Return why there are no rules to judge a model by."""
    if len(analysis.exits) < 2:
        return "the model has a single exit"
    if analysis.recorded.traits.task == "regression":
        return (
            "rules for numbers compare an exit with the one before it, which takes three exits, or "
            "go by an error that the exits have learned to estimate"
        )
    return "its exits give no numbers to go by"


def gain_sentence(analysis: Analysis) -> str:
    """Return in one sentence what early exit gains over stopping all texts at the same layer."""
    name, family = analysis.model.name, analysis.headline
    if family is None:
        return f"{name}: no text can leave early, because {no_family(analysis)}."
    found = analysis.gains[family]
    subject = f"{name} on {analysis.data.name}: early exit by {family}"
    where = f"on average over mean depths from {depths(found)} layers"
    gap = f"95 % interval {interval(found.interval, signed=True)}"
    if not found.shown:
        return (
            f"{subject} is not shown to gain anything over stopping every text at the same layer: "
            f"at equal mean depth the difference is {_points(analysis, found.mean)}, {where} "
            f"({gap}, which includes 0)."
        )
    verb = "gains" if found.mean > 0 else "loses"
    return (
        f"{subject} {verb} {_points(analysis, abs(found.mean), signed=False)} at equal mean depth "
        f"against stopping every text at the same layer, {where} ({gap})."
    )


def better_than_full(analysis: Analysis) -> str | None:
    """Return a sentence where one layer alone is better than full depth."""
    best = max(analysis.points[STATIC], key=lambda point: point.value)
    if best.value <= analysis.full.value:
        return None
    return (
        f"{analysis.model.name}: {title(analysis.metric)} is {_with_unit(analysis, best)} if every "
        f"text stops at layer {best.costs[LAYERS]:.0f}, more than "
        f"{_with_unit(analysis, analysis.full)} at full depth."
    )


def depths(found: Gain) -> str:
    """Return the mean depths that a family of rules covers."""
    return f"{found.depths[0]:.1f} to {found.depths[1]:.1f}"


def gain_text(found: Gain) -> str:
    """Return a gain with its interval."""
    return f"{hundredths(found.mean, signed=True)} ({interval(found.interval, signed=True)})"


def _with_unit(analysis: Analysis, point: Point) -> str:
    value, name = hundredths(point.value), unit(analysis.metric)
    return f"{value} ({name})" if name == _CORRELATION else f"{value} {name}"


def _points(analysis: Analysis, difference: float, signed: bool = True) -> str:
    name = analysis.metric
    what = "hundredths" if unit(name) == _CORRELATION else "points"
    return f"{hundredths(difference, signed)} {what} of {title(name)}"


def slug(name: str) -> str:
    """Return a name with hyphens in the place of what file names should not have."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.") or "model"
