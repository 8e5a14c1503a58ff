from io import StringIO

from rich.console import Console

from models.progress import progress


def test_without_a_terminal_a_line_comes_every_five_seconds_and_at_the_end() -> None:
    out, now_s = StringIO(), 0.0
    with progress(Console(file=out), "recording", 40, lambda: now_s) as advance:
        for _ in range(4):
            now_s += 3
            advance(10)
    assert out.getvalue().splitlines() == [
        "recording: 20 of 40, about 6 s left",
        "recording: 40 of 40, done in 12 s",
    ]


def test_resumed_work_is_estimated_by_the_pace_since_then_and_says_a_note() -> None:
    out, now_s = StringIO(), 0.0
    with progress(Console(file=out), "training", 40, lambda: now_s, done=20) as advance:
        now_s = 6
        advance(10, "loss 0.5")
    assert out.getvalue() == "training: 30 of 40, loss 0.5, about 6 s left\n"


def test_on_a_terminal_a_bar_says_how_much_is_done() -> None:
    out = StringIO()
    with progress(Console(file=out, force_terminal=True), "recording", 40) as advance:
        advance(40, "loss 0.5")
    assert "40/40" in out.getvalue()
    assert "loss 0.5" in out.getvalue()
