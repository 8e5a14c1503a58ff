"""Where texts leave."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from models.quality.analysis import Analysis
from models.quality.costs import LAYERS
from models.quality.points import LADDER, PROFILES, Point
from models.report.markdown import Picture
from models.report.parts.overthinking import overthinking
from models.report.parts.part import Part, missing
from models.report.style import as_svg, by_depth, new_figure, spread
from models.report.wording import no_family

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
        return missing(TITLE, no_family(analysis))
    exits, right = analysis.exits, analysis.recorded.right
    named = {_name(p): p.exit_shares for p in _points(analysis, analysis.headline)}
    caption = "Share of texts that leave at each exit, in percent."
    if right is not None:
        caption += _ORACLE
        oracle = overthinking(right, exits).oracle_shares
        named["oracle (knows the answers)"] = list(oracle)
    picture = Picture(f"{slug}-exits.svg", caption, as_svg(_drawn(named, exits)))
    return Part(TITLE, [picture], named)


def _points(analysis: Analysis, family: str) -> list[Point]:
    profiles = analysis.points.get(PROFILES, [])
    named = [profile.rule for profile in profiles]
    rungs = [rung for rung in analysis.points.get(LADDER, []) if rung.rule not in named]
    points = analysis.families[family]
    depths = [point.costs[LAYERS] for point in points]
    shallow, deep = min(depths), max(depths)
    wanted = [deep - (deep - shallow) * i / (_OF_FAMILY + 1) for i in range(1, _OF_FAMILY + 1)]
    nearest = [min(range(len(points)), key=lambda i: abs(depths[i] - w)) for w in wanted]
    chosen = [points[i] for i in dict.fromkeys(nearest)]
    return [*profiles, *(rungs[i] for i in spread(len(rungs), _MOST_RUNGS)), *chosen]


def _name(point: Point) -> str:
    text = point.rule.text()
    if point.family == LADDER:
        return f"rung: {text}"
    return f"{point.name}: {text}" if point.name else text


def _drawn(shares: Mapping[str, Sequence[float]], exits: tuple[int, ...]) -> Figure:
    """Draw a bar for each rule: the share of texts from each exit, early ones on the left.

    Args:
        shares: (exits,) by the rule's name.
        exits: layers.
    """
    figure = new_figure((9.0, 1.3 + 0.38 * len(shares)))
    axes = figure.add_subplot()
    names, colours = list(shares), by_depth(len(exits))
    left = np.zeros(len(names))
    for index, layer in enumerate(exits):
        width = 100 * np.array([shares[name][index] for name in names])
        axes.barh(names, width, left=left, color=colours[index], label=str(layer), height=0.72)
        dark = index >= len(exits) / 2
        for place, (start, part) in enumerate(zip(left, width, strict=True)):
            if part >= 6:
                axes.text(
                    start + part / 2,
                    place,
                    f"{part:.0f}",
                    ha="center",
                    va="center",
                    fontsize=8.5,
                    color="white" if dark else "black",
                )
        left = left + width
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set_xlim(0, 100)
    axes.xaxis.set_major_formatter(PercentFormatter(decimals=0))
    axes.set_xlabel("share of texts")
    axes.legend(title="exit layer", loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8.5)
    return figure
