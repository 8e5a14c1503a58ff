from loadtest.bench.front.costs import Cost
from loadtest.bench.front.servers import AGAINST, FLOOR, THIS
from loadtest.bench.front.stages import Stage
from loadtest.bench.front.table import Line, cost_table, document, stage_table

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


def test_shares_become_milliseconds_of_the_event_loop() -> None:
    shares = dict.fromkeys(Stage, 0.0) | {Stage.READ: 0.75, Stage.LOOP: 0.25}
    sampled = Line(THIS, "balanced", 32, [Cost(2.0, 1.0, 0.0, 9.0)], shares)
    text = stage_table([line(FLOOR, "balanced", 1.0), sampled])
    assert "| stage, ms (share) | Offramp, balanced, 32 texts |" in text
    assert "| read | 1.50 (75 %) |" in text
    assert FLOOR not in text
