"""A section of the page, and what it is written from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from models.experiments.budgets import measured_files
from models.experiments.figures import Measured, measured
from models.experiments.places import Places
from models.experiments.record import NO_TIME, Record, Seconds
from models.experiments.run import DataName, Run
from models.experiments.training import is_finished
from models.quality.costs import RowCost
from models.quality.page import Picture
from models.quality.recorded import Recorded
from models.quality.style import as_svg
from serve.bundle.manifest import Precision


@dataclass(frozen=True)
class Context:
    """What a section may read, and where its pictures go.

    Attributes:
        places: folders.
    """

    places: Places

    def folder(self, run: Run) -> Path:
        """Return the folder of a trained model."""
        return run.folder(self.places.runs)

    def bundle(self, name: str) -> Path:
        """Return the folder of an exported model, such as `sst2-minilm`."""
        return self.places.bundles / name

    def data(self, name: DataName) -> tuple[Path, ...]:
        """Return the files that models of this data are measured on, together."""
        return measured_files(name, self.places)

    def finished(self, run: Run) -> bool:
        """Return whether the run's model is there."""
        return is_finished(run, self.places)

    def recorded(self, run: Run) -> Recorded:
        """Return what all exits say of the run's measured texts; kept on disk."""
        return self._measured(run).recorded

    def costs(self, run: Run) -> Mapping[str, RowCost]:
        """Return what these texts cost by exit, in layers and in both kinds of MFLOPs."""
        return self._measured(run).costs

    def measured(
        self, folder: Path, data: tuple[Path, ...], precision: Precision = "fp32"
    ) -> Measured:
        """Return the same of any bundle, model folder or checkpoint on any files; kept too.

        Of a bundle only layers are known.
        """
        return measured(folder, data, self.places.runs / "measured", precision)

    def seconds(self, run: Run) -> Seconds:
        """Return what the training took, without that of what it starts from."""
        record = Record.read(run, self.places)
        return record.seconds if record else NO_TIME

    def picture(self, name: str, figure: Figure, caption: str) -> str:
        """Write a figure as `name`.svg beside the page; return Markdown that shows it."""
        folder = self.places.pictures
        folder.mkdir(parents=True, exist_ok=True)
        svg = as_svg(figure)
        (folder / f"{name}.svg").write_bytes(svg)
        beside = (folder / f"{name}.svg").relative_to(self.places.page.parent)
        return str(Picture(str(beside), caption, svg))

    def _measured(self, run: Run) -> Measured:
        return self.measured(self.folder(run), self.data(run.data))


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        title: its heading.
        runs: what it is written from, in the order of training.
        write: returns its Markdown, without the heading; called once all runs are finished.
        partial: call `write` as soon as one run is finished; it asks `Context.finished`.
        bundles: names of the exported models without which it cannot be written.
    """

    title: str
    runs: tuple[Run, ...]
    write: Callable[[Context], str]
    partial: bool = False
    bundles: tuple[str, ...] = ()
