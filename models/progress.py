"""How far a long command has come: a bar on a terminal, else a line every few seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINE_EVERY_S = 5.0

# Takes how many units of the work have been done since the last call.
Advance = Callable[[int], None]


@contextmanager
def progress(
    console: Console, title: str, total: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Advance]:
    """Show how much of the work inside the block is done, and about how long the rest takes.

    Args:
        console: where to show it.
        title: what is being done.
        total: units of work.
        clock: monotonic seconds.
    """
    if not console.is_terminal:
        yield _lines(console, title, total, clock)
        return
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(TextColumn("{task.description}"), *columns, console=console) as bar:
        task = bar.add_task(title, total=total)
        yield lambda units: bar.update(task, advance=units)


def _lines(console: Console, title: str, total: int, clock: Callable[[], float]) -> Advance:
    began_s = said_s = clock()
    done = 0

    def advance(units: int) -> None:
        nonlocal done, said_s
        done += units
        now_s = clock()
        if now_s - said_s < LINE_EVERY_S and done < total:
            return
        said_s, took_s = now_s, now_s - began_s
        rest = f"about {took_s / done * (total - done):.0f} s left"
        if done >= total:
            rest = f"done in {took_s:.0f} s"
        console.print(f"{title}: {done} of {total}, {rest}", soft_wrap=True, highlight=False)

    return advance
