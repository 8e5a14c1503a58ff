"""What is known of a training run beside its folder: what it was asked for, and what it took."""

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

from models.errors import TrainingFailed
from models.experiments.budgets import BUDGETS, ENCODERS, settings, training_file
from models.experiments.places import Places
from models.experiments.run import Run
from serve.bundle.loader import sha256_of

WEIGHTS = "model.safetensors"

# All that decides which weights a run reaches, apart from the code: the options of `offramp train`
# that name no files, and the hashes of the files.
Asked: TypeAlias = Mapping[str, str]


class Seconds(NamedTuple):
    """What a training took.

    Attributes:
        wall: seconds by the clock, of all starts together.
        processor: seconds of all processors together.
    """

    wall: float = 0.0
    processor: float = 0.0


NO_TIME = Seconds()


@dataclass(frozen=True)
class Record:
    """The file beside a run's folder.

    Attributes:
        asked: what the folder's model was trained for, or is being trained for.
        seconds: what that has taken so far.
        finished: whether the model is complete.
    """

    asked: Asked
    seconds: Seconds = NO_TIME
    finished: bool = False

    @classmethod
    def read(cls, run: Run, places: Places) -> Self | None:
        """Return a run's record, None if it has not been started."""
        path = record_file(run, places)
        if not path.is_file():
            return None
        found = json.loads(path.read_text("utf-8"))
        return cls(found["asked"], Seconds(*found["seconds"]), found["finished"])

    def write(self, run: Run, places: Places) -> None:
        """Replace a run's record."""
        path = record_file(run, places)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        partial.replace(path)

    def after(self, took: Seconds, finished: bool) -> "Record":
        """Return the record after one more start of the training."""
        wall, processor = self.seconds.wall + took.wall, self.seconds.processor + took.processor
        return replace(self, seconds=Seconds(wall, processor), finished=finished)


def record_file(run: Run, places: Places) -> Path:
    """Return the path of a run's record."""
    return places.runs / f"{run}.json"


def asked(run: Run, places: Places) -> Asked:
    """Return what a run asks for.

    Raises:
        TrainingFailed: data, encoder or the model that it starts from are not there.
    """
    encoder = encoder_folder(run, places)
    files = {
        "train": training_file(run.data, places),
        "dev": dev_file(run, places),
        "config": encoder / "config.json",
        "weights": encoder / WEIGHTS,
    }
    for path in files.values():
        if not path.is_file():
            raise TrainingFailed(
                f"{run}: {path} is not there; `make zoo` makes encoders and splits"
            )
    return {"options": " ".join(options(run)), **{k: _hash(path) for k, path in files.items()}}


def options(run: Run) -> list[str]:
    """Return the options of `offramp train`, without those that name files."""
    return [word for pair in settings(run).items() for word in pair] + list(run.options)


def difference(one: Asked, other: Asked) -> str:
    """Return in words where two runs differ; empty if they do not."""
    names = [name for name in one if one[name] != other.get(name)]
    return "; ".join(f"{name}: {other.get(name)}, not {one[name]}" for name in names)


def encoder_folder(run: Run, places: Places) -> Path:
    """Return the folder that a run starts from."""
    return run.start.folder(places.runs) if run.start else places.zoo / ENCODERS[run.encoder]


def dev_file(run: Run, places: Places) -> Path:
    """Return the file that `offramp train` measures on."""
    return places.data / BUDGETS[run.data].measured[0]


def _hash(path: Path) -> str:
    return _hash_once(path, path.stat().st_mtime_ns)


@functools.cache
def _hash_once(path: Path, _modified: int) -> str:
    return sha256_of(path)
