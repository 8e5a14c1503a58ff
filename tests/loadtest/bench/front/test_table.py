from loadtest.bench.front.costs import Cost
from loadtest.bench.front.table import OTHER, THIS, Line, figures


def line(server: str, exit: str, loop_ms: float, texts: int = 1) -> Line:
    return Line(server, exit, texts, [Cost(loop_ms, 2.0, 0.0, 300.0)])


def test_event_loops_are_compared_at_equal_requests() -> None:
    lines = [
        line(THIS, "never", 6.0),
        line(THIS, "balanced", 1.0),
        line(OTHER, "never", 8.0),
        line(OTHER, "balanced", 2.0),
        line(THIS, "balanced", 9.0, texts=32),
    ]
    found = figures(lines)
    assert [each["event loop / other's"] for each in found] == [0.75, 0.5, 1, 1, None]
    assert found[0]["sum_ms"] == 8.0
