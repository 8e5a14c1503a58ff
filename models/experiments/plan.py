"""Which trainings are left, and how long they take."""

from collections.abc import Iterable, Iterator, Mapping

from models.experiments.budgets import BUDGETS
from models.experiments.run import Run
from models.experiments.section import Context, Section


def with_starts(runs: Iterable[Run]) -> list[Run]:
    """Return the runs and those that they start from, each once, in the order of training."""
    return list(dict.fromkeys(each for run in runs for each in _chain(run)))


def missing_minutes(runs: Iterable[Run], context: Context) -> int:
    """Return about how many minutes the runs that are not finished take together."""
    return sum(_minutes(run, context) for run in with_starts(runs) if not context.finished(run))


def listing(sections: Mapping[str, Section], context: Context) -> list[tuple[str, int, int, int]]:
    """Return name, runs, finished runs and minutes left of each section."""
    rows = []
    for name, section in sections.items():
        runs = with_starts(section.runs)
        done = sum(map(context.finished, runs))
        rows.append((name, len(runs), done, missing_minutes(runs, context)))
    return rows


def _chain(run: Run) -> Iterator[Run]:
    if run.start:
        yield from _chain(run.start)
    yield run


def _minutes(run: Run, context: Context) -> int:
    return BUDGETS[run.data].minutes[run.encoder]
