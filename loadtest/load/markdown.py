"""Tables and numbers in Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; columns of numbers are aligned to the right."""
    body = [list(row) for row in rows]
    marks = ["---:" if _numeric(body, place) else "---" for place in range(len(head))]
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


def _numeric(rows: Sequence[Sequence[Any]], place: int) -> bool:
    return all(row[place] is None or isinstance(row[place], int | float) for row in rows)
