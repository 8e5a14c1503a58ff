"""Where experiments find data, encoders and models, and where they write."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from models.data.lines import read_lines
from models.experiments.measured import Measured, measured
from models.experiments.run import BUDGETS, ENCODERS, DataName, Run
from models.model_files import CONFIG
from serve.bundle.loader import MANIFEST

_SHIPPED = Path("models/zoo")


@dataclass(frozen=True)
class Context:
    """Folders, and what sections read from them. A zoo model is named as in `make zoo MODEL=...`.

    Attributes:
        data: holds `sst2/train.tsv`, `sst2/dev.tsv` and so on.
        zoo: holds the encoders, models and splits that `make zoo` makes.
        bundles: exported models.
        runs: the trained models of the experiments, and what has been measured of them.
        page: the page that is written.
    """

    data: Path = Path("../shared/data")
    zoo: Path = Path("build/zoo")
    bundles: Path = Path("bundles")
    runs: Path = Path("build/experiments")
    page: Path = Path("docs/reproductions.md")

    def folder(self, model: Run | str) -> Path:
        """Return the folder of a run, or of a zoo model."""
        if isinstance(model, Run):
            return self.runs / str(model)
        own = self.zoo / model
        return own if (own / CONFIG).is_file() else _SHIPPED / model

    def encoder(self, run: Run) -> Path:
        """Return the folder that a run starts from."""
        return self.folder(run.start) if run.start else self.zoo / ENCODERS[run.encoder]

    def trained(self, model: str) -> bool:
        """Return whether a zoo model is there."""
        return (self.folder(model) / CONFIG).is_file()

    def exported(self, model: str) -> bool:
        """Return whether a zoo model's bundle is there."""
        return (self.bundles / model / MANIFEST).is_file()

    def measured(self, model: Run | str) -> Measured:
        """Return what all exits say of the texts that the model is measured on; kept on disk."""
        return measured(self.folder(model), self.files(data_of(model)), self.runs / "measured")

    def files(self, data: DataName) -> tuple[Path, ...]:
        """Return the files that models of this data are measured on, together."""
        given = ((self.data / name, self.zoo / name) for name in BUDGETS[data].measured)
        return tuple(own if own.is_file() else split for own, split in given)

    def training_file(self, data: DataName) -> Path:
        """Return the training file; a choice of rows is written when it is first asked for."""
        budget = BUDGETS[data]
        whole = (self.zoo if budget.split else self.data) / data / "train.tsv"
        if budget.rows is None:
            return whole
        chosen = self.runs / "data" / data / f"train-{budget.rows}.tsv"
        if not chosen.is_file():
            chosen.parent.mkdir(parents=True, exist_ok=True)
            partial = chosen.with_suffix(".partial")
            partial.write_text("\n".join(_some_rows(whole, budget.rows)) + "\n", "utf-8")
            partial.replace(chosen)
        return chosen


def data_of(model: Run | str) -> DataName:
    """Return the data that a run or a zoo model was trained on."""
    if isinstance(model, Run):
        return model.data
    return next(name for name in BUDGETS if model.startswith(f"{name}-"))


def _some_rows(path: Path, count: int) -> list[str]:
    """Return the header and so many lines, in their order; the same ones everywhere."""
    header, *lines = (line.rstrip("\r\n") for _, line in read_lines(path))
    order = sorted(range(len(lines)), key=lambda i: hashlib.sha256(lines[i].encode()).digest())
    return [header, *(lines[i] for i in sorted(order[:count]))]
