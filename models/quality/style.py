"""The look of every picture."""

import io
import re
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

SIZE = (9.0, 3.6)
DPI = 130
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    # Equal pictures are equal files.
    "svg.hashsalt": "offramp",
}
# Colours that the colour-blind tell apart (Okabe and Ito 2008), and a brown: one for each family
# of rules that a model can have.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b")
STATIC_COLOUR = "#4d4d4d"
RIGHT, WRONG = "#0072b2", "#d55e00"


# Where things are in a picture, in points: two decimals are enough, and make it a third smaller.
_PLACES = re.compile(rb' (?:d|x|y)="[^"]*"')
_LONG = re.compile(rb"\d+\.\d{3,}")


def new_figure(size: tuple[float, float] = SIZE) -> Figure:
    """Return an empty figure; to be used within `mpl.rc_context(STYLE)`."""
    return Figure(figsize=size, dpi=DPI, layout="constrained")


def legend_above(axes: Axes, **options: Any) -> None:
    """Put the legend beside the title, outside the plot."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2, **options)


def legend_below(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Put one legend for the whole figure under it."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=columns)


def as_svg(figure: Figure) -> bytes:
    """Return the figure as SVG whose letters are shapes, so that it looks the same anywhere."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _PLACES.sub(lambda place: _LONG.sub(_rounded, place[0]), buffer.getvalue())


def _rounded(number: re.Match[bytes]) -> bytes:
    return b"%.2f" % float(number[0])


def spread(count: int, most: int) -> list[int]:
    """Return places out of so many, the first and the last among them, evenly spread."""
    return sorted({round(x) for x in np.linspace(0, count - 1, min(count, most))})


def by_depth(num_exits: int) -> list[Any]:
    """Return one colour for each exit, light for early and dark for late ones."""
    places = [0.95 - 0.85 * i / max(num_exits - 1, 1) for i in range(num_exits)]
    return [mpl.colormaps["viridis"](place) for place in places]
