from copy import deepcopy
from typing import Any

import pytest

from loadtest.bench.errors import BenchFailed
from loadtest.bench.gpu.plan import Figures, Step, run_plan

LOST = "CUDA failure 700: an illegal memory access was encountered"


class Clock:
    """Goes on when told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def run(*steps: Step, end_s: float = 100.0, clock: Clock | None = None) -> dict[str, Any]:
    document: dict[str, Any] = {"problems": []}
    run_plan(steps, document, lambda: None, end_s, clock or Clock())
    return document


def nothing(figures: Figures, seconds: float) -> None:
    figures.add("time", seconds)


def failing(error: Exception, cause: Exception | None = None) -> Step:
    def fail(figures: Figures, seconds: float) -> None:
        figures.add("before", 1)
        raise error from cause

    return Step("failing", 1, fail)


def test_steps_share_the_time_and_what_others_leave_or_overrun() -> None:
    clock = Clock()

    def slow(figures: Figures, seconds: float) -> None:
        nothing(figures, seconds)
        clock.now_s += 40

    steps = [Step("slow", 1, slow), Step("short", 1, nothing), Step("long", 3, nothing)]
    found = run(*steps, clock=clock)["steps"]
    assert [found[step.name]["time"] for step in steps] == [20, 15, 60]
    assert found["slow"]["seconds"] == 40


def test_no_time_left_is_not_less_than_nothing() -> None:
    assert run(Step("late", 1, nothing), end_s=-5)["steps"]["late"]["time"] == 0


def test_every_figure_is_saved_at_once() -> None:
    document: dict[str, Any] = {"problems": []}
    saved: list[Any] = []

    def measure(figures: Figures, seconds: float) -> None:
        figures.add("one", 1)
        figures.row("lines", ms=2.0)
        figures.skip("three", "needs CUDA")
        figures.problem("four")

    save = lambda: saved.append(deepcopy(document))  # noqa: E731
    run_plan([Step("step", 1, measure)], document, save, 1.0, Clock())
    found = [each["steps"]["step"] for each in saved]
    assert [list(each) for each in found[:4]] == [
        ["one"],
        ["one", "lines"],
        ["one", "lines", "skipped"],
        ["one", "lines", "skipped", "problems"],
    ]
    assert saved[-1]["problems"] == ["four"]


def test_an_error_is_a_problem_of_its_step_only() -> None:
    document = run(failing(ValueError("wrong\nat length")), Step("after", 1, nothing))
    assert document["problems"] == ["failing: ValueError: wrong"]
    assert document["steps"]["failing"]["before"] == 1
    assert "time" in document["steps"]["after"]


@pytest.mark.parametrize(
    "step",
    [failing(RuntimeError(LOST)), failing(BenchFailed("a row got an error"), RuntimeError(LOST))],
)
def test_a_lost_device_ends_the_plan(step: Step) -> None:
    document = run(step, Step("next", 1, nothing), Step("last", 1, nothing))
    assert list(document["steps"]) == ["failing"]
    assert document["problems"][1] == "the device is lost; not run: next, last"
