"""The benchmarks' page and the README's table, made of the cells."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from loadtest.benchmarks import template
from loadtest.benchmarks.cells import Cells
from loadtest.benchmarks.contenders import Contender
from loadtest.benchmarks.figures import (
    ACCURACY,
    BALANCED,
    COLUMNS,
    CPU,
    FAST,
    LAYERS,
    NEVER,
    OTHERS,
    SAME,
    SAME_AT_LEAST,
    SPEED_16,
    SPEED_64,
    Column,
    bars,
    beside,
    differences,
    is_own,
    left_out,
    losses,
    measured,
    num_rounds,
    shown,
    span,
)
from loadtest.benchmarks.measure import CHECK
from loadtest.benchmarks.pictures import COSTS, IN_TIME, draw, has_open_loops
from models.quality.page import table

BEGIN, END = "<!-- from `make benchmarks` -->", "<!-- end -->"
_QUALITY = (SAME, ACCURACY, LAYERS)
_TWO_RUNS = 4  # rounds
_MEANS = (*_QUALITY, CPU, *OTHERS)  # columns without ranges


def write_page(page: Path, cells: Cells, contenders: Mapping[str, Contender]) -> None:
    """Write the page and its pictures, if anything was measured."""
    if not measured(cells):
        return
    page.parent.mkdir(parents=True, exist_ok=True)
    draw(page.parent, cells, next(iter(measured(cells))))
    page.write_text(whole_page(cells, contenders))


def whole_page(cells: Cells, contenders: Mapping[str, Contender]) -> str:
    """Return the page."""
    first, *others = measured(cells)
    in_time = has_open_loops(cells, first)
    checked = [cell for key, cell in cells.by_key.items() if key.load == CHECK]
    dates = sorted({cell["date"] for cell in checked})
    parts = [
        template.INTRO,
        f"Measured on {' to '.join(sorted({dates[0], dates[-1]}))}, {checked[0]['cpu']}.\n",
        figures_table(cells, first, (*_QUALITY, *COLUMNS)),
        f"\n![Processor time against other answers]({COSTS})",
        f"![Answers within a bound on p99]({IN_TIME})\n" if in_time else "",
        *_losing(cells),
        template.BIASED,
        template.HOW.format(
            seconds=checked[0]["seconds"],
            rounds=", ".join(f"{suite} {num_rounds(cells, suite)}" for suite in measured(cells)),
        ),
    ]
    if num_rounds(cells, first) >= _TWO_RUNS:
        found = [100 * each for each in differences(cells, first)]
        parts.append(template.AGAIN.format(suite=first, median=median(found), most=max(found)))
    if in_time:
        parts.append(f"## Other loads\n\n{figures_table(cells, first, OTHERS)}\n")
    for suite in others:
        parts.append(f"## {suite}\n\n{figures_table(cells, suite, (*_QUALITY, *COLUMNS))}\n")
    parts += [template.WRITTEN, f"{written_table(cells, first, contenders)}\n", template.ABSENT]
    if failed := left_out(cells):
        parts.append("\n".join(f"* {name}: {why}" for name, why in failed.items()) + "\n")
    return "\n".join([*parts, template.END])


def _losing(cells: Cells) -> Iterator[str]:
    """Yield the paragraphs on where this server loses."""
    yield template.LOSE
    rows = []
    for bar, found, holds in bars(cells):
        sign = "at least" if bar.column.more_is_better else "at most"
        ratio = f"{found.ratio:.2f}"
        what = f"{bar.suite}, {bar.column.title}: {bar.own} / {found.peer}"
        rows.append([what, f"{sign} {bar.wanted:g}", ratio if holds else f"**{ratio}**"])
    yield f"{table(('what', 'wanted', 'measured'), rows)}\n" if rows else "Not measured.\n"
    lines: dict[str, list[str]] = {}
    for suite, own, column, found in losses(cells):
        figure = f"{column.title} {shown(found.own.mean)} ({found.peer} {shown(found.theirs.mean)})"
        lines.setdefault(f"{suite}, {own}", []).append(figure)
    if lines:
        yield template.BEHIND
        yield "\n".join(f"* {what}: {'; '.join(each)}" for what, each in lines.items()) + "\n"
    yield from _cheaper(cells)


def _cheaper(cells: Cells) -> Iterator[str]:
    """Yield a sentence for each peer that is cheaper than this server and answers otherwise."""
    for suite, names in measured(cells).items():
        own = span(cells, suite, BALANCED, SPEED_64)
        for name in filter(lambda name: not is_own(name), names):
            same, speed = span(cells, suite, name, SAME), span(cells, suite, name, SPEED_64)
            right = span(cells, suite, name, ACCURACY)
            if not (own and same and right and speed) or same.mean >= SAME_AT_LEAST:
                continue
            if speed.mean > own.mean:
                yield (
                    f"{name} gives {speed.mean / own.mean:.1f} times as many answers as "
                    f"`{BALANCED}`, {shown(same.mean)} % of them the whole model's, "
                    f"{shown(right.mean)} % right.\n"
                )


def figures_table(cells: Cells, suite: str, columns: Sequence[Column]) -> str:
    """Return the table of a suite."""
    rows = [
        [f"**{name}**" if is_own(name) else name, *_figures(cells, suite, name, columns)]
        for name in measured(cells)[suite]
    ]
    return table((suite, *(column.title for column in columns)), rows)


def _figures(
    cells: Cells, suite: str, name: str, columns: Sequence[Column]
) -> Iterator[str | None]:
    for column in columns:
        found = span(cells, suite, name, column)
        yield found and (shown(found.mean) if column in _MEANS else str(found))


def written_table(cells: Cells, suite: str, contenders: Mapping[str, Contender]) -> str:
    """Return what each server takes to write, its batching, and the statuses of some requests."""
    kinds = ("cut off", "wrong type", "health", "metrics")
    rows = []
    names = measured(cells)[suite]
    own = [name for name in names if is_own(name)]
    for name in (name for name in names if name not in own[1:]):
        found = (c for k, c in cells.by_key.items() if k[:2] == (suite, name) and k.load == CHECK)
        statuses = next(found)["statuses"]
        if contender := contenders.get(name):
            lines = sum(len(file.read_text().splitlines()) for file in contender.files())
            how = f"{contender.batching} ([docs]({contender.docs}))".removesuffix(" ([docs]())")
            title = name.partition(", ")[0] if name in own else name
            rows.append([title, lines, how, *(statuses[kind] for kind in kinds)])
    return table(
        ("server", "lines", "batching", "cut off", "wrong type", "health", "metrics"), rows
    )


_FURTHER = {
    "agnews-minilm": "AG News, six layers and a table before them",
    "sst2-mpnet": "SST-2, twelve layers",
    "sst2-cascade": "SST-2, twelve layers and the shipped model before them",
}


def write_readme(readme: Path, cells: Cells) -> None:
    """Write the README's table between its marks, if this server was measured beside a peer."""
    text = readme.read_text()
    if section := readme_table(cells):
        before, _, rest = text.partition(BEGIN)
        readme.write_text(f"{before}{BEGIN}\n{section}\n{END}{rest.partition(END)[2]}")


def _further_rows(cells: Cells, suite: str, title: str) -> Iterator[list[str | None]]:
    """Yield the rows of another model: the fastest peer's, and this server's at 3 %."""
    found = beside(cells, suite, FAST, SPEED_64)
    if found is None:
        return
    of_server = {found.peer: (found.peer, "none"), FAST: ("Offramp", "at most 3 %")}
    for name, (server, other) in of_server.items():
        figures = (span(cells, suite, name, column) for column in (LAYERS, SPEED_16, SPEED_64))
        layers, *speeds = (each and shown(each.mean) for each in figures)
        yield [f"{title}, {server}", layers or "all", *(speed or "-" for speed in speeds), other]


def readme_table(cells: Cells) -> str:
    """Return the README's table, with what it comes to; nothing without this server and a peer."""
    suite = next(iter(measured(cells)), "")
    pair = [beside(cells, suite, BALANCED, column) for column in (SPEED_16, SPEED_64)]
    whole = beside(cells, suite, NEVER, SPEED_64)
    if not pair[0] or not pair[1] or not whole:
        return ""
    says = {
        whole.peer: (f"{whole.peer}, the fastest other server", "none"),
        NEVER: ("Offramp, whole model", "none"),
        BALANCED: ('Offramp, `{"max_disagreement": 0.01}`, the default', "at most 1 %"),
        FAST: ('Offramp, `{"max_disagreement": 0.03}`', "at most 3 %"),
    }
    rows = []
    for name, (title, other) in says.items():
        figures = (span(cells, suite, name, column) for column in (LAYERS, SPEED_16, SPEED_64))
        layers, *speeds = (found and shown(found.mean) for found in figures)
        rows.append([title, layers or "6", *speeds, other])
    for further, title in _FURTHER.items():
        rows += _further_rows(cells, further, title)
    head = (
        *("int8, one core; the first four: shipped model, SST-2", "layers run"),
        *("texts/s, 16 clients", "64 clients", "other answers than the whole model"),
    )
    ratios = " and ".join(f"{found.ratio:.2f}" for found in pair if found)
    return (
        f"{table(head, rows)}\n\nAt 1 % it gives {ratios} times the answers of the fastest other "
        "server (16 and 64 clients). Layers are the model's own; those of the shipped model before "
        "it come on top."
    )
