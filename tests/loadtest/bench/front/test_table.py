from loadtest.bench.front.costs import Cost
from loadtest.bench.front.servers import AGAINST, FLOOR, THIS
from loadtest.bench.front.table import Line, cost_table, document

OTHER = AGAINST.format("elsewhere")


def line(server: str, exit: str, loop_ms: float, texts: int = 1) -> Line:
    return Line(server, exit, texts, [Cost(loop_ms, 2.0, 0.0, 300.0)])


def test_event_loops_are_compared_at_equal_requests() -> None:
    lines = [
        line(THIS, "never", 6.0),
        line(THIS, "balanced", 1.0),
        line(OTHER, "never", 8.0),
        line(OTHER, "balanced", 2.0),
        line(FLOOR, "never", 3.0),
        line(FLOOR, "balanced", 0.5),
        line("contender", "whole model", 9.0),
        line("contender", "whole model", 9.0, texts=32),
    ]
    found = document(lines, {})["lines"]
    assert [each["loop_to_floor"] for each in found] == [2, 2, 8 / 3, 4, 1, 1, 3, None]
    assert [each["loop_to_other"] for each in found] == [0.75, 0.5, *[None] * 6]
    text = cost_table(lines)
    assert "| Offramp | balanced | 1 | 1.00 | 2.00 | 0.00 | 3.00 | 300 | 2.00 | 0.50 |" in text
    assert "other checkout" not in cost_table(lines[:2])
