"""The file that predictions go to: a part of it survives a stop, and a later run goes on."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models.errors import TrainingFailed
from models.prediction.formats import BEGINNINGS
from serve.bounded_file import read_file

_MOST_STATE = 1 << 16


@dataclass(frozen=True)
class Done:
    """How far a run has come.

    Attributes:
        texts: that are answered.
        num_bytes: of the file with their lines.
        layers: that they have taken in all, see `Traits.layers_taken`.
    """

    texts: int = 0
    num_bytes: int = 0
    layers: float = 0


class Output:
    """Collects lines in a file beside `--out`, which takes its place when all are there.

    Attributes:
        done: how far the run has come.
    """

    def __init__(self, out: Path, fingerprint: str, header: str, resume: bool) -> None:
        """Begin with the header, or go on behind the last whole block.

        Raises:
            TrainingFailed: there is nothing to resume, or what is there is of another run.
        """
        self._out, self._fingerprint, self.done = out, fingerprint, Done()
        self._partial = _partial(out)
        self._state = out.with_name(f"{out.name}.progress.json")
        if resume:
            self.done = self._read()
        else:
            out.parent.mkdir(parents=True, exist_ok=True)
            self._partial.write_text(f"{header}\n" if header else "", "utf-8")
            self._keep(Done(num_bytes=self._partial.stat().st_size))

    def add(self, lines: Iterable[str], layers: float) -> None:
        """Write the lines of a block; after a crash all of them count, or none."""
        block = list(lines)
        with self._partial.open("r+b") as file:
            file.truncate(self.done.num_bytes)
            file.seek(self.done.num_bytes)
            file.write("".join(f"{line}\n" for line in block).encode())
            file.flush()
            os.fsync(file.fileno())
            num_bytes = file.tell()
        done = self.done
        self._keep(Done(done.texts + len(block), num_bytes, done.layers + layers))

    def finish(self) -> None:
        """Put the file in its place."""
        self._partial.replace(self._out)
        self._state.unlink()

    def _keep(self, done: Done) -> None:
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps({"fingerprint": self._fingerprint, **asdict(done)}), "utf-8")
        fresh.replace(self._state)
        self.done = done

    def _read(self) -> Done:
        if not (self._state.is_file() and self._partial.is_file()):
            raise TrainingFailed(f"there is nothing to resume: {self._partial} does not exist")
        try:
            saved: dict[str, Any] = json.loads(read_file(self._state, _MOST_STATE))
            fingerprint, done = saved.pop("fingerprint"), Done(**saved)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise TrainingFailed(
                f"{self._state} cannot be read: leave --resume out to start anew"
            ) from None
        if fingerprint != self._fingerprint or self._partial.stat().st_size < done.num_bytes:
            raise TrainingFailed(
                f"{self._partial} is of a run with another model, data, rule or format: repeat "
                "that run's options, or leave --resume out to start anew"
            )
        return done


def check_out(out: Path, data: Path, model: Path) -> None:
    """Raise TrainingFailed unless predictions may be written there."""
    where = out.resolve()
    if where == data.resolve():
        raise TrainingFailed(f"--out {out} is the data itself: choose another place")
    if where.is_relative_to(model.resolve()):
        raise TrainingFailed(f"--out {out} lies in {model}, which is only read")
    if out.is_dir():
        raise TrainingFailed(f"--out {out} is a folder: name a file")
    if out.exists() and not _holds_predictions(out):
        raise TrainingFailed(f"--out {out} exists and holds no predictions: choose another place")
    partial = _partial(out)
    # Of JSON lines nothing is there before the first block.
    if partial.exists() and not _holds_predictions(partial, or_nothing=True):
        raise TrainingFailed(
            f"--out {out}: {partial}, where predictions are collected, exists and holds none: "
            "choose another place"
        )


def _partial(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def _holds_predictions(path: Path, or_nothing: bool = False) -> bool:
    if not path.is_file():  # nor are a pipe and a device read, which may never end
        return False
    with path.open("rb") as file:
        beginning = file.read(64).decode(errors="replace")
    return beginning.startswith(BEGINNINGS) or (or_nothing and not beginning)
