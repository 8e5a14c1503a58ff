"""Tables and numbers in Markdown, and whole pages."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from models.report.blocks import Block, Facts, Page, Picture, Table, Text

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?(e[+-]?\d+)?|inf|nan)|-")


def markdown_page(page: Page) -> str:
    """Return a page; its pictures are files beside it."""
    parts = []
    for section in page:
        parts.append(f"{'#' * section.level} {section.title}")
        parts += [_block(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; columns of numbers are aligned to the right."""
    body = [list(row) for row in rows]
    marks = ["---:" if numeric(body, place) else "---" for place in range(len(head))]
    lines = [head, marks, *([shown(cell) for cell in row] for row in body)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(value: Any) -> str:
    """Return a number with about three digits, None as a dash, and text that fits a cell."""
    if value is None:
        return "-"
    if isinstance(value, float):
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
        return f"{value:.{digits}f}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share in percent, None as a dash."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def numeric(rows: Sequence[Sequence[Any]], place: int) -> bool:
    """Whether a column holds nothing but numbers, as such or written out."""
    return all(row[place] is None or _NUMBER.fullmatch(str(row[place])) for row in rows)


def _block(block: Block) -> str:
    match block:
        case Text(text):
            return text
        case Facts(facts):
            return "\n".join(f"* {name}: {value}" for name, value in facts.items())
        case Table(head, rows):
            return table(head, rows)
        case Picture(file, caption):
            return f"![{caption}]({file})\n\n*{caption}*"
