"""The benchmark's figures, line by line."""

from collections.abc import Sequence
from typing import NamedTuple

from loadtest.bench.front.costs import Cost, loop_ratio, median_cost
from loadtest.http.client import Json

THIS, OTHER = "Offramp", "Offramp, the other checkout"
FLOOR = "bare ASGI app over the same classifier"


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
            "event loop / floor's": _loop_to(FLOOR, line, lines),
            "event loop / other's": _loop_to(OTHER, line, lines),
            "turns": [cost._asdict() for cost in line.costs],
        }
        for line in lines
    ]


def _loop_to(server: str, line: Line, lines: Sequence[Line]) -> float | None:
    """Compare event loops at equal requests; one without exits is compared to `never`."""
    same = [other for other in lines if other.server == server and other.texts == line.texts]
    found = next((other for other in same if other.exit == line.exit), same[0] if same else None)
    return loop_ratio(line.costs, found.costs) if found else None
