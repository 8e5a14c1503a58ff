"""What is known of a training run beside its folder: what it was asked for, and what it took."""

import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from models.errors import TrainingFailed
from models.experiments.context import Context
from models.experiments.run import Run
from serve.bundle.loader import sha256_of

WEIGHTS = "model.safetensors"


@dataclass
class Record:
    """The file beside a run's folder.

    Attributes:
        asked: what the folder's model was trained for, or is being trained for.
        seconds: what that has taken so far: by the clock, and of all processors together.
        finished: whether the model is complete.
    """

    asked: dict[str, str]
    seconds: tuple[float, float] = (0.0, 0.0)
    finished: bool = False

    @classmethod
    def read(cls, run: Run, context: Context) -> Self | None:
        """Return a run's record, None if it has not been started."""
        path = record_file(run, context)
        return cls(**json.loads(path.read_text("utf-8"))) if path.is_file() else None

    def write(self, run: Run, context: Context) -> None:
        """Replace a run's record."""
        path = record_file(run, context)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        partial.replace(path)


def record_file(run: Run, context: Context) -> Path:
    """Return the path of a run's record."""
    return context.runs / f"{run}.json"


def is_finished(run: Run, context: Context) -> bool:
    """Return whether the run's model is there, trained for what the run asks."""
    record = Record.read(run, context)
    try:
        return record is not None and record.finished and record.asked == asked(run, context)
    except TrainingFailed:
        return False


def processor_seconds(run: Run, context: Context) -> float:
    """Return the processor seconds of a run and of what it starts from."""
    records = (Record.read(each, context) for each in run.chain)
    return sum(record.seconds[1] for record in records if record)


def asked(run: Run, context: Context) -> dict[str, str]:
    """Return what decides which weights a run reaches, apart from the code: options and files.

    Raises:
        TrainingFailed: data, encoder or the model that it starts from are not there.
    """
    encoder = context.encoder(run)
    files = {
        "train": context.training_file(run.data),
        "dev": context.files(run.data)[0],
        "config": encoder / "config.json",
        "weights": encoder / WEIGHTS,
    }
    for path in files.values():
        if not path.is_file():
            raise TrainingFailed(
                f"{run}: {path} is not there; `make zoo` makes encoders and splits"
            )
    hashes = {name: _hash(path, path.stat().st_mtime_ns) for name, path in files.items()}
    return {"options": " ".join(run.words), **hashes}


@functools.cache
def _hash(path: Path, _modified: int) -> str:
    return sha256_of(path)
