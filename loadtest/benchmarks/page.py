"""The section of the benchmarks' page that `make benchmarks` writes, from the cells."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.benchmarks.cells import Cells
from loadtest.benchmarks.contenders import Contender
from loadtest.benchmarks.figures import BOUNDS, COLUMNS, OTHERS, Column, losses, measured, span
from loadtest.benchmarks.measure import CHECK
from models.quality.page import table

HEADING = "## Beside what people use instead"
_SAME = Column("same label %", CHECK, "same", True, 100)
_ACCURACY = Column("accuracy %", CHECK, "accuracy", True, 100)
_LAYERS = Column("layers", CHECK, "mean_layer", False)
_CPU = COLUMNS[-1]
_PICTURES = ("cost-and-quality.svg", "answers-in-time.svg")
_INTRO = """    make benchmarks      # an hour or more, on idle cores; it can be stopped

Each server has one core and one thread, the load the other core. All but the pipeline (fp32) run
the same int8 weights and tokenizer. `same label` is the share of answers that are the whole
model's. The range over the rounds, which go in opposite order, is in brackets; `-` is not measured.
"""
_BIASED = """### Are we biased?

We wrote this server, and chose texts and loads. Against that: each peer's file is in
`loadtest/benchmarks/peers`, with its pinned packages and the settings shown, which an expert may
better; all have the same graph, tokenizer and padding by length; a server whose labels
are not the whole model's is not measured; and what we lose is computed from the tables. One machine
with two cores says nothing of GPUs or of many cores. Load and server share caches and memory
bandwidth.
"""


def write_page(page: Path, cells: Cells, contenders: Mapping[str, Contender]) -> None:
    """Write the section and its pictures; what else an existing page has stays as it is."""
    page.parent.mkdir(parents=True, exist_ok=True)
    before = page.read_text() if page.exists() else f"{HEADING}\n"
    start = before.index(HEADING)
    end = before.find("\n## ", start + 1)
    rest = before[end:] if end >= 0 else ""
    names = measured(cells)
    if not names:
        return
    draw(page.parent, cells, next(iter(names)))
    page.write_text(before[:start] + section(cells, contenders) + rest)


def section(cells: Cells, contenders: Mapping[str, Contender]) -> str:
    """Return the section."""
    first, *others = measured(cells)
    costs, in_time = _PICTURES
    names, lost = measured(cells)[first], [f"* {line}" for line in losses(cells)]
    if not any(name.startswith("Offramp") for name in names):
        lost = [f"Offramp was not measured beside {', '.join(names)}."]
    parts = [
        f"{HEADING}\n\n{_INTRO}",
        figures_table(cells, first, (_SAME, _ACCURACY, _LAYERS, *COLUMNS)),
        f"\n![Processor time against other answers]({costs})",
        f"![Answers within a bound on p99]({in_time})\n",
        figures_table(cells, first, OTHERS),
    ]
    for suite in others:
        parts.append(f"\n### {suite}\n")
        parts.append(figures_table(cells, suite, (_SAME, _ACCURACY, _LAYERS, *COLUMNS)))
    parts.append(f"\n### What a person writes\n\n{written_table(cells, first, contenders)}")
    said = "\n".join(lost) or "In none of these figures."
    parts.append(f"\n### Where we lose\n\n{said}\n\n{_BIASED}")
    return "\n".join(parts)


def figures_table(cells: Cells, suite: str, columns: Sequence[Column]) -> str:
    """Return the table of a suite."""
    rows = [
        [name, *(found and str(found) for found in _spans(cells, suite, name, columns))]
        for name in measured(cells)[suite]
    ]
    return table((suite, *(column.title for column in columns)), rows)


def _spans(cells: Cells, suite: str, name: str, columns: Sequence[Column]) -> Iterator[object]:
    return (span(cells, suite, name, column) for column in columns)


def written_table(cells: Cells, suite: str, contenders: Mapping[str, Contender]) -> str:
    """Return what each server takes to write, its batching, and the statuses of some requests."""
    kinds = ("cut off", "wrong type", "health", "metrics")
    rows = []
    for key, cell in cells.by_key.items():
        if (key.suite, key.round, key.load) != (suite, 0, CHECK) or key.contender not in contenders:
            continue
        contender = contenders[key.contender]
        lines = contender.file and len(contender.file.read_text().splitlines())
        statuses = (cell["statuses"][kind] for kind in kinds)
        rows.append([contender.name, lines or 0, contender.batching, *statuses])
    head = ("server", "lines", "batching", "JSON cut off", "wrong type", "health", "metrics")
    return table(head, rows)


def draw(folder: Path, cells: Cells, suite: str) -> None:
    """Draw the two pictures of a suite."""
    names = measured(cells)[suite]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "0", "font.size": 9}):
        for file, plot in zip(_PICTURES, (_costs, _in_time), strict=True):
            _save(folder / file, plot, cells, suite, names)


Plot = Callable[[Axes, Cells, str, Sequence[str]], None]


def _save(path: Path, plot: Plot, cells: Cells, suite: str, names: Sequence[str]) -> None:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    plot(axes, cells, suite, names)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def _costs(axes: Axes, cells: Cells, suite: str, names: Sequence[str]) -> None:
    for name in names:
        cost, same = span(cells, suite, name, _CPU), span(cells, suite, name, _SAME)
        if cost and same:
            axes.plot(100 - same.mean, cost.mean, "o", color=_color(name))
            where = (100 - same.mean, cost.mean)
            axes.annotate(name, where, xytext=(5, 0), textcoords="offset points")
    axes.set(xlabel="% of answers other than the whole model's", ylabel=_CPU.title, yscale="log")


def _in_time(axes: Axes, cells: Cells, suite: str, names: Sequence[str]) -> None:
    for shift, column in enumerate(BOUNDS):
        heights = [found.mean if (found := span(cells, suite, n, column)) else 0 for n in names]
        places = [place + 0.4 * shift for place in range(len(names))]
        axes.barh(places, heights, 0.4, label=column.title, alpha=0.6 + 0.4 * shift)
    axes.set_yticks([place + 0.2 for place in range(len(names))], names)
    axes.invert_yaxis()
    axes.set_xlabel("texts/s, Poisson arrivals")
    axes.legend()


def _color(name: str) -> str:
    return "tab:orange" if name.startswith("Offramp") else "tab:blue"
