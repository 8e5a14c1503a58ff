"""Where texts leave, and what going on does to them."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from models.evaluation.overthinking import Overthinking
from models.report.style import RIGHT, WRONG, by_depth, legend_above, new_figure


def draw_exit_shares(shares: Mapping[str, Sequence[float]], exits: tuple[int, ...]) -> Figure:
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


def draw_overthinking(found: Overthinking, exits: tuple[int, ...]) -> Figure:
    """Draw, for each exit, how many texts going on from it to the end spoils and repairs."""
    figure = new_figure((9.0, 3.2))
    axes = figure.add_subplot()
    place, width = np.arange(len(exits) - 1), 0.38
    spoiled = 100 * np.array(found.right_now_wrong_later[:-1])
    repaired = 100 * np.array(found.wrong_now_right_later[:-1])
    axes.bar(
        place - width / 2, repaired, width, color=RIGHT, label="wrong here, right at full depth"
    )
    axes.bar(
        place + width / 2, spoiled, width, color=WRONG, label="right here, wrong at full depth"
    )
    axes.set_xticks(place, [str(layer) for layer in exits[:-1]])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("exit layer")
    axes.set_ylabel("share of texts, %")
    legend_above(axes)
    return figure
