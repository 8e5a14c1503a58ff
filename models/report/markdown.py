"""Pages of Markdown: what they are made of, tables and numbers."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?(e[+-]?\d+)?|inf|nan)|-")


class Picture(NamedTuple):
    """A picture.

    Attributes:
        file: name beside the page.
        caption: what it shows.
        svg: the picture itself.
    """

    file: str
    caption: str
    svg: bytes

    def __str__(self) -> str:
        return f"![{self.caption}]({self.file})\n\n*{self.caption}*"


# A paragraph, a list, a table or a heading is Markdown.
Block: TypeAlias = str | Picture
Page: TypeAlias = Sequence[Block]


def pictures_of(page: Page) -> list[Picture]:
    """Return a page's pictures, in order."""
    return [block for block in page if isinstance(block, Picture)]


def markdown_page(page: Page) -> str:
    """Return a page; its pictures are files beside it."""
    return "\n\n".join(map(str, page)) + "\n"


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
