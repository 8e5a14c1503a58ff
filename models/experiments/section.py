"""A section of the page, and what it is written from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from models.experiments.places import Places
from models.experiments.run import DataName, Run
from models.recorded import Recorded
from serve.bundle.manifest import Precision


class Seconds(NamedTuple):
    """What a training took.

    Attributes:
        wall: seconds by the clock, of all starts together.
        processor: seconds of all processors together.
    """

    wall: float
    processor: float


@dataclass(frozen=True)
class Context:
    """What a section may read, and where its pictures go.

    Attributes:
        places: folders.
    """

    places: Places

    def folder(self, run: Run) -> Path:
        """Return the folder of a trained model."""
        raise NotImplementedError

    def bundle(self, name: str) -> Path:
        """Return the folder of an exported model, such as `sst2-minilm`."""
        return self.places.bundles / name

    def data(self, name: DataName) -> tuple[Path, ...]:
        """Return the files that models of this data are measured on, together."""
        raise NotImplementedError

    def finished(self, run: Run) -> bool:
        """Return whether the run's model is there."""
        raise NotImplementedError

    def recorded(self, run: Run) -> Recorded:
        """Return what all exits say of the run's measured texts; kept beside the model."""
        raise NotImplementedError

    def measured(
        self, folder: Path, data: tuple[Path, ...], precision: Precision = "fp32"
    ) -> Recorded:
        """Return the same of any bundle, model folder or checkpoint on any files."""
        raise NotImplementedError

    def seconds(self, run: Run) -> Seconds:
        """Return what the training took."""
        raise NotImplementedError

    def picture(self, name: str, figure: Figure, caption: str) -> str:
        """Write a figure as `name`.svg beside the page; return Markdown that shows it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        title: its heading.
        runs: what it is written from, in the order of training.
        write: returns its Markdown, without the heading; called once all runs are finished.
        partial: call `write` as soon as one run is finished; it asks `Context.finished`.
        needs: further files or folders, made by other commands, without which the section is
            left out: each with the command that makes it.
    """

    title: str
    runs: tuple[Run, ...]
    write: Callable[[Context], str]
    partial: bool = False
    needs: tuple[tuple[Path, str], ...] = ()
