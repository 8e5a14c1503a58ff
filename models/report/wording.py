"""How figures are worded."""

from models.evaluation.analysis import Analysis
from models.evaluation.bootstrap import Interval
from models.evaluation.costs import LAYERS
from models.evaluation.gain import Gain
from models.evaluation.operating_points import STATIC, Point
from models.evaluation.tables import title, unit

_CORRELATION = "x 100"


def label(analysis: Analysis, with_data: bool) -> str:
    """Return the name of a model, and of its data where there are several files."""
    observed = analysis.observed
    return (
        f"{observed.subject.name} on {observed.data.name}" if with_data else observed.subject.name
    )


def metric_title(analysis: Analysis) -> str:
    """Return the main metric with its unit."""
    name = analysis.observed.metric.name
    return f"{title(name)} {unit(name)}"


def hundredths(value: float, signed: bool = False) -> str:
    """Return a metric, or a difference of two, in hundredths."""
    return f"{100 * value:{'+' if signed else ''}.2f}"


def interval(found: Interval, signed: bool = False) -> str:
    """Return an interval of a metric in hundredths."""
    return f"{hundredths(found.low, signed)} to {hundredths(found.high, signed)}"


def headline(analysis: Analysis) -> str:
    """Return in one sentence what early exit gains over stopping all texts at the same layer."""
    observed, family = analysis.observed, analysis.headline
    name = observed.subject.name
    if family is None:
        return f"{name} has a single exit, so no text can leave early."
    found = analysis.gains[family]
    subject = f"{name} on {observed.data.name}: early exit by {family}"
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
    static = analysis.points[STATIC]
    best, full = max(static, key=analysis.value), static[-1]
    if analysis.value(best) <= analysis.value(full):
        return None
    name, layer = analysis.observed.subject.name, analysis.mean_cost(best, LAYERS)
    return (
        f"{name}: {title(analysis.observed.metric.name)} is {_with_unit(analysis, best)} if every "
        f"text stops at layer {layer:.0f}, more than {_with_unit(analysis, full)} at full depth."
    )


def depths(found: Gain) -> str:
    """Return the mean depths that a family of rules covers."""
    return f"{found.depths[0]:.1f} to {found.depths[-1]:.1f}"


def gain_text(found: Gain) -> str:
    """Return a gain with its interval."""
    return f"{hundredths(found.mean, signed=True)} ({interval(found.interval, signed=True)})"


def _with_unit(analysis: Analysis, point: Point) -> str:
    value, name = hundredths(analysis.value(point)), unit(analysis.observed.metric.name)
    return f"{value} ({name})" if name == _CORRELATION else f"{value} {name}"


def _points(analysis: Analysis, difference: float, signed: bool = True) -> str:
    name = analysis.observed.metric.name
    what = "hundredths" if unit(name) == _CORRELATION else "points"
    return f"{hundredths(difference, signed)} {what} of {title(name)}"
