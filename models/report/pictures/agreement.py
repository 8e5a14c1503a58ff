"""The matrix of agreement between exits."""

from matplotlib.figure import Figure

from models.evaluation.exit_agreement import ExitAgreement
from models.report.style import new_figure

_MOST_NUMBERS = 12


def draw_agreement(found: ExitAgreement) -> Figure:
    """Draw the matrix, with numbers where they fit."""
    num_exits = len(found.exits)
    side = min(1.8 + 0.55 * num_exits, 8.0)
    figure = new_figure((side + 1.0, side))
    axes = figure.add_subplot()
    percent = 100 * found.matrix
    lowest = float(percent.min())
    image = axes.imshow(percent, cmap="cividis", vmin=lowest, vmax=100)
    labels = [str(layer) for layer in found.exits]
    axes.set_xticks(range(num_exits), labels)
    axes.set_yticks(range(num_exits), labels)
    axes.set_xlabel("exit layer")
    axes.set_ylabel("exit layer")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    if num_exits <= _MOST_NUMBERS:
        for row in range(num_exits):
            for column in range(num_exits):
                value = percent[row, column]
                light = value > (lowest + 100) / 2
                axes.text(
                    column,
                    row,
                    "100" if value == 100 else f"{min(value, 99.9):.1f}",
                    ha="center",
                    va="center",
                    fontsize=8.5,
                    color="black" if light else "white",
                )
    what = "same answer, %" if found.measure == "agreement" else "Pearson correlation x 100"
    figure.colorbar(image, ax=axes, shrink=0.8, label=what)
    return figure
