"""A plan: steps that run in order, share out the time, and keep what they have found."""

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from models.report.markdown import shown, table
from serve.engine.device_errors import device_lost

NEEDS_CUDA = "needs CUDA"

Clock = Callable[[], float]  # in seconds


class Figures:
    """What one step finds; the document is written at every figure."""

    def __init__(self, found: dict[str, Any], problems: list[str], save: Callable[[], None]):
        self.found = found
        self._problems, self._save = problems, save

    def add(self, name: str, value: Any) -> None:
        """Add a figure."""
        self.found[name] = value
        self._save()

    def row(self, name: str, **figures: Any) -> None:
        """Add a line to a table."""
        self.found.setdefault(name, []).append(figures)
        self._save()

    def skip(self, what: str, reason: str) -> None:
        """Say why something is not measured."""
        self.found.setdefault("skipped", {})[what] = reason
        self._save()

    def problem(self, said: str) -> None:
        """Say what is wrong; the check then fails."""
        self.found.setdefault("problems", []).append(said)
        self._problems.append(said)
        self._save()


class Step(NamedTuple):
    """A part of the plan.

    Attributes:
        name: in the document.
        seconds: its share of the plan's time.
        measure: called with the figures and the seconds that it may take.
    """

    name: str
    seconds: float
    measure: Callable[[Figures, float], None]


def run_plan(
    steps: Sequence[Step],
    document: dict[str, Any],
    save: Callable[[], None],
    end_s: float,
    clock: Clock = time.perf_counter,
) -> None:
    """Run every step; what is left of the time is shared out anew before each.

    An exception is a problem of its step. One that says that the device is lost ends the plan: all
    later calls would fail too.

    Args:
        steps: in order.
        document: gets `steps` with each one's figures; has `problems`.
        save: writes the document.
        end_s: on the clock.
        clock: seconds.
    """
    done, problems = document.setdefault("steps", {}), document["problems"]
    for place, step in enumerate(steps):
        print(f"\n== {step.name}")
        share = step.seconds / sum(each.seconds for each in steps[place:])
        began = clock()
        found = done.setdefault(step.name, {})
        figures = Figures(found, problems, save)
        lost = False
        try:
            step.measure(figures, max(0.0, end_s - began) * share)
        except Exception as error:  # ONNX Runtime's errors have no common type
            traceback.print_exc()
            figures.problem(f"{step.name}: {type(error).__name__}: {_first_line(error)}")
            lost = _lost(error)
        figures.add("seconds", round(clock() - began, 1))
        show(found)
        if lost and (rest := steps[place + 1 :]):
            left = ", ".join(each.name for each in rest)
            figures.problem(f"the device is lost; not run: {left}")
            return


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]


def _lost(error: BaseException | None) -> bool:
    """Tell whether the error, or one that it was raised from, says that the device is lost."""
    while error is not None:
        if device_lost(error):
            return True
        error = error.__cause__
    return False


def show(found: dict[str, Any]) -> None:
    """Print figures: lines of tables, and names with values."""
    for name, value in found.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            print(f"\n{name}\n{lines_table(value)}")
        elif isinstance(value, dict):
            for key, each in value.items():
                print(f"{name}: {key}: {shown(each)}")
        else:
            print(f"{name}: {shown(value)}")


def lines_table(lines: Sequence[dict[str, Any]]) -> str:
    """Return figures as Markdown, a column for each name that any line has."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    return table(names, [[_rounded(line.get(name)) for name in names] for line in lines])


def _rounded(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return " ".join(str(_rounded(each)) for each in value)
    return f"{value:.4g}" if isinstance(value, float) else value
