"""The picture of a rollout: its share, what the arms answer, and the interval that decides."""

from collections.abc import Sequence
from itertools import pairwise
from math import nan
from pathlib import Path

import matplotlib as mpl

from loadtest.http.client import Json
from models.report.style import COLOURS, STYLE, as_svg, legend_above, new_figure

_LIVE, _CANDIDATE, _BOUND = COLOURS[0], COLOURS[1], "#4d4d4d"
# Of counts, which come every two seconds.
_MEAN_S = 6.0
# That are shown after the end.
_AFTER_S = 15.0


def write_picture(seen: Sequence[Json], bound: float, path: Path) -> Path:
    """Write an SVG of what a rollout has shown over time.

    Args:
        seen: its reports, each with the seconds that had passed.
        bound: of the disagreement, as a share.
        path: of the file.
    """
    running = [shown for shown in seen if shown["state"] in ("running", "paused")]
    last_s = running[-1]["passed_s"]
    seen = [shown for shown in seen if shown["passed_s"] < last_s + _AFTER_S]
    with mpl.rc_context(STYLE):
        figure = new_figure((9.0, 5.2))
        share, quality = figure.subplots(2, 1, sharex=True)
        passed = [shown["passed_s"] for shown in seen]
        for arm, colour in (("live", _LIVE), ("candidate", _CANDIDATE)):
            times, rates = _per_second(running, arm)
            share.plot(times, rates, color=colour, label=arm)
        of_candidate = [_percent(shown) for shown in seen]
        other = share.twinx()
        other.step(passed, of_candidate, where="post", color=_BOUND, linestyle=":")
        other.set_ylabel("share of the candidate, %")
        other.set_ylim(-4, 104)
        other.grid(visible=False)
        share.set_title("Answers per second; dotted: the candidate's share")
        share.set_ylim(bottom=0)
        legend_above(share)
        found = [shown["arms"]["candidate"]["disagreement"] for shown in seen]
        low, high = ([100 * each[side] for each in found] for side in ("low", "high"))
        quality.fill_between(passed, low, high, color=_CANDIDATE, alpha=0.25, linewidth=0)
        rates = [100 * each.get("rate", nan) for each in found]
        quality.plot(passed, rates, color=_CANDIDATE)
        quality.axhline(100 * bound, color=_BOUND, linestyle="--")
        quality.set_ylim(0, 1000 * bound)
        quality.set_title("Disagreement of the candidate with full depth, %: interval and bound")
        quality.set_xlabel("seconds of load")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(as_svg(figure))
    return path


def _percent(shown: Json) -> float:
    return float(shown["percent"]) if shown["state"] in ("running", "paused", "promoted") else 0.0


def _per_second(seen: Sequence[Json], arm: str) -> tuple[list[float], list[float]]:
    """Return times, and the answers of an arm per second in the time before each."""
    ends = [seen[0]]
    for shown in seen:
        if shown["passed_s"] - ends[-1]["passed_s"] >= _MEAN_S:
            ends.append(shown)
    times, rates = [], []
    for before, after in pairwise(ends):
        seconds = after["passed_s"] - before["passed_s"]
        answers = after["arms"][arm]["answers"] - before["arms"][arm]["answers"]
        times.append((before["passed_s"] + after["passed_s"]) / 2)
        rates.append(answers / seconds)
    return times, rates
