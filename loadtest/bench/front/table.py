"""The benchmark's figures, line by line."""

from collections.abc import Sequence
from typing import NamedTuple

from loadtest.bench.front.costs import Cost, loop_ratio, median_cost
from loadtest.http.client import Json

THIS, OTHER = "Offramp", "Offramp, the other checkout"


class Line(NamedTuple):
    """One server with one exit choice and one size of requests.

    Attributes:
        server: its name.
        exit: what is asked of it.
        texts: in each request.
        costs: by turn.
    """

    server: str
    exit: str
    texts: int
    costs: Sequence[Cost]


def figures(lines: Sequence[Line]) -> list[Json]:
    """Return each line's medians, its event loop's time over others', and last its turns."""
    return [
        {
            **dict(zip(line._fields[:3], line[:3], strict=True)),
            **median_cost(line.costs)._asdict(),
            "sum_ms": median_cost(line.costs).sum_ms,
            "event loop / other's": _loop_to_other(line, lines),
            "turns": [cost._asdict() for cost in line.costs],
        }
        for line in lines
    ]


def _loop_to_other(line: Line, lines: Sequence[Line]) -> float | None:
    """Compare with the other checkout's event loop at equal requests, if there is one."""
    kind = (OTHER, *line[1:3])
    return next((loop_ratio(line.costs, each.costs) for each in lines if each[:3] == kind), None)
