"""What the documentation says of policies after something has happened."""

from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"

STANDALONE, RAY, STATE, CLUSTER = (
    "`--standalone`", "`offramp serve`", "with `--state`", "Ray cluster",
)  # fmt: skip


def said(event: str, column: str) -> str:
    """Return a cell of the table "What becomes of a policy that was changed by request"."""
    _, _, after = PAGE.read_text().partition("What becomes of a policy that was changed")
    header, _, *rows = [line for line in after.splitlines() if line.startswith("|")]
    [row] = [row for row in rows if row.startswith(f"| {event} ")]
    return _cells(row)[_cells(header).index(column)]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]
