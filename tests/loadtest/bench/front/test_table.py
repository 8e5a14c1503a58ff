from loadtest.bench.front.costs import Cost
from loadtest.bench.front.table import FLOOR, OTHER, THIS, Line, figures


def line(server: str, exit: str, loop_ms: float, texts: int = 1) -> Line:
    return Line(server, exit, texts, [Cost(loop_ms, 2.0, 0.0, 300.0)])


def test_event_loops_are_compared_at_equal_requests() -> None:
    found = figures(
        [
            line(THIS, "never", 6.0),
            line(THIS, "balanced", 1.0),
            line(OTHER, "never", 8.0),
            line(OTHER, "balanced", 2.0),
            line(FLOOR, "never", 3.0),
            line(FLOOR, "balanced", 0.5),
            line("contender", "whole model", 9.0),
            line("contender", "whole model", 9.0, texts=32),
        ]
    )
    assert [each["event loop / floor's"] for each in found] == [2, 2, 8 / 3, 4, 1, 1, 3, None]
    assert [each["event loop / other's"] for each in found][:2] == [0.75, 0.5]
    assert found[0]["sum_ms"] == 8.0
