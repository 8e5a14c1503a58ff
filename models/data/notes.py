"""What a reader has left out of a file: said once, and no error."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:  # a bare host measures without it
    from rich.console import Console


class DataNote(UserWarning):
    """A sentence about a data file."""


def note(sentence: str) -> None:
    """Tell a sentence; the warnings module drops those that were told before."""
    warnings.warn(sentence, DataNote, stacklevel=2)


@contextmanager
def notes_to(console: "Console") -> Iterator[None]:
    """Print notes as lines of their own, until the block ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", DataNote)
        show_others = warnings.showwarning

        def show(  # the module's own signature
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, DataNote):
                console.print(f"note: {message}", soft_wrap=True, highlight=False, markup=False)
            else:
                show_others(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
