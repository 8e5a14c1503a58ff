"""How far a long command has come: a bar on a terminal, else a line every few seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

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


class Advance(Protocol):
    """Shows that more of the work is done."""

    def __call__(self, units: int, note: str = "") -> None:
        """Count units of work done since the last call, and show a note beside the count."""
        ...


@contextmanager
def progress(
    console: Console,
    title: str,
    total: int,
    clock: Callable[[], float] = time.monotonic,
    done: int = 0,
) -> Iterator[Advance]:
    """Show how much of the work inside the block is done, and about how long the rest takes.

    Args:
        console: where to show it.
        title: what is being done.
        total: units of work.
        clock: monotonic seconds.
        done: units of a resumed work that were done before.
    """
    if not console.is_terminal:
        yield _lines(console, title, total, clock, done)
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as bar:
        task = bar.add_task(title, total=total, completed=done, note="")
        yield lambda units, note="": bar.update(task, advance=units, note=note)


def _lines(
    console: Console, title: str, total: int, clock: Callable[[], float], done: int
) -> Advance:
    began_s = said_s = clock()
    before = done

    def advance(units: int, note: str = "") -> None:
        nonlocal done, said_s
        done += units
        now_s = clock()
        if now_s - said_s < LINE_EVERY_S and done < total:
            return
        said_s, took_s = now_s, now_s - began_s
        rest = f"about {took_s / (done - before) * (total - done):.0f} s left"
        if done >= total:
            rest = f"done in {took_s:.0f} s"
        line = ", ".join(part for part in (f"{title}: {done} of {total}", note, rest) if part)
        console.print(line, soft_wrap=True, highlight=False)

    return advance
