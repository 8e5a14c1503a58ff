"""Where texts leave."""

from models.evaluation.analysis import Analysis
from models.evaluation.costs import LAYERS
from models.evaluation.operating_points import LADDER, PROFILES, Point
from models.evaluation.overthinking import overthinking
from models.report.blocks import Picture
from models.report.parts.part import Part, missing
from models.report.pictures.calibration import spread
from models.report.pictures.exits import draw_exit_shares
from models.report.rule_text import rule_text
from models.report.style import as_svg

TITLE = "Where texts leave"
_ORACLE = (
    " The oracle lets each text leave at the first exit that has it right, and at the last where "
    "none has."
)
_OF_FAMILY = 5
_MOST_RUNGS = 6


def shares_part(analysis: Analysis, slug: str) -> Part:
    """Return the exit shares of profiles, rungs, some rules, and a rule that knew the answers."""
    if analysis.headline is None:
        return missing(TITLE, "the model has a single exit")
    exits = analysis.observed.traits.exits
    named = {_name(p): p.exit_shares(len(exits)) for p in _points(analysis, analysis.headline)}
    caption = "Share of texts that leave at each exit, in percent."
    if analysis.observed.answers is not None:
        caption += _ORACLE
        oracle = overthinking(analysis.observed.answers, exits).oracle_shares
        named["oracle (knows the answers)"] = list(oracle)
    picture = Picture(
        f"{slug}-exits.svg",
        caption,
        as_svg(draw_exit_shares(named, exits)),
    )
    return Part(TITLE, [picture], named)


def _points(analysis: Analysis, family: str) -> list[Point]:
    profiles = analysis.points.get(PROFILES, [])
    named = [profile.rule for profile in profiles]
    rungs = [rung for rung in analysis.points.get(LADDER, []) if rung.rule not in named]
    points = analysis.families[family]
    depths = [analysis.mean_cost(point, LAYERS) for point in points]
    shallow, deep = min(depths), max(depths)
    wanted = [deep - (deep - shallow) * i / (_OF_FAMILY + 1) for i in range(1, _OF_FAMILY + 1)]
    nearest = [min(range(len(points)), key=lambda i: abs(depths[i] - w)) for w in wanted]
    chosen = [points[i] for i in dict.fromkeys(nearest)]
    return [*profiles, *(rungs[i] for i in spread(len(rungs), _MOST_RUNGS)), *chosen]


def _name(point: Point) -> str:
    text = rule_text(point.rule)
    if point.family == LADDER:
        return f"rung: {text}"
    return f"{point.name}: {text}" if point.name else text
