"""Good answers against the load, a plot for each size of requests."""

from collections.abc import Sequence

import matplotlib as mpl

from loadtest.overload.goodput import Compared
from models.report.style import COLOURS, STATIC_COLOUR, STYLE, as_svg, legend_below, new_figure


def picture(found: Sequence[Compared]) -> bytes:
    """Return the picture as SVG."""
    sizes = sorted({each.texts for each in found})
    with mpl.rc_context(STYLE):
        figure = new_figure()
        for place, texts in enumerate(sizes, 1):
            axes = figure.add_subplot(1, len(sizes), place)
            own = [each for each in found if each.texts == texts]
            loads = [each.load for each in own]
            axes.plot(loads, [each.overload.offered for each in own], ":", color=STATIC_COLOUR,
                      label="requests")  # fmt: skip
            axes.plot(loads, [each.without.good for each in own], "o-", color=COLOURS[1],
                      label="answers in time, without overload")  # fmt: skip
            axes.plot(loads, [each.overload.good for each in own], "o-", color=COLOURS[0],
                      label="answers in time, with overload")  # fmt: skip
            axes.set_title(f"{texts} text{'s' if texts > 1 else ''} in a request")
            axes.set_xlabel("load, times the capacity")
            axes.set_ylabel("per second")
            axes.set_ylim(bottom=0)
        legend_below(figure, axes, 3)
        return as_svg(figure)
