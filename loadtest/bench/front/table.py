"""The benchmark's figures as a table of Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.bench.front.costs import Cost, loop_ratio, median_cost
from loadtest.bench.front.servers import AGAINST, FLOOR, THIS
from loadtest.http.client import Json
from models.report.markdown import table

_HEAD = (
    "server",
    "exit",
    "texts",
    "event loop ms",
    "engine ms",
    "other threads ms",
    "sum ms",
    "requests/s",
    "event loop / floor's",
)


@dataclass(frozen=True)
class Line:
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


def cost_table(lines: Sequence[Line]) -> str:
    """Return what a request costs, server by server."""
    compared = any(_is_other(line) for line in lines)
    head = (*_HEAD, "event loop / the other checkout's") if compared else _HEAD
    return table(head, [_cells(line, lines)[: len(head)] for line in lines])


def document(lines: Sequence[Line], facts: Json) -> Json:
    """Return all figures as JSON data."""
    return {
        "run": facts,
        "lines": [
            {
                "server": line.server,
                "exit": line.exit,
                "texts": line.texts,
                **median_cost(line.costs)._asdict(),
                "loop_to_floor": _loop_to(FLOOR, line, lines),
                "loop_to_other": _loop_to_other(line, lines),
                "turns": [cost._asdict() for cost in line.costs],
            }
            for line in lines
        ],
    }


def _cells(line: Line, lines: Sequence[Line]) -> list[object]:
    cost = median_cost(line.costs)
    times = (cost.loop_ms, cost.engine_ms, cost.other_ms, cost.sum_ms)
    return [
        line.server,
        line.exit,
        line.texts,
        *times,
        cost.per_second,
        _loop_to(FLOOR, line, lines),
        _loop_to_other(line, lines),
    ]


def _loop_to_other(line: Line, lines: Sequence[Line]) -> float | None:
    other = next((each.server for each in lines if _is_other(each)), None)
    return _loop_to(other, line, lines) if other and line.server == THIS else None


def _loop_to(server: str, line: Line, lines: Sequence[Line]) -> float | None:
    """Compare event loops at equal requests; one without exits is compared to `never`."""
    same = [other for other in lines if other.server == server and other.texts == line.texts]
    found = next((other for other in same if other.exit == line.exit), same[0] if same else None)
    return loop_ratio(line.costs, found.costs) if found else None


def _is_other(line: Line) -> bool:
    return line.server.startswith(AGAINST.format(""))
