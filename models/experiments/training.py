"""Training a run once: kept if it is there, resumed if it was stopped; and its record."""

import fcntl
import functools
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from models.errors import TrainingFailed
from models.experiments.context import Context
from models.experiments.run import Run
from models.training.options import CHECKPOINT
from models.training.stop_request import stop_on_signal
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


_OFFRAMP = (sys.executable, "-c", "from serve.cli import main; main()")
_SHOWN_LINES = 5
_LOOK_EVERY_S = 0.5


class Stopped(Exception):
    """The user has stopped the training; the next call goes on with it."""


def ensure(run: Run, context: Context, say: Callable[[str], None] = print) -> Path:
    """Return the folder of a trained run; train it, and what it starts from, if need be.

    Another process that trains the same run is waited for. `say` is told what is begun.

    Raises:
        Stopped: by Ctrl-C or SIGTERM.
        TrainingFailed: `offramp train` failed, or the folder holds the model of another run.
    """
    if run.start:
        ensure(run.start, context, say)
    context.runs.mkdir(parents=True, exist_ok=True)
    folder = context.folder(run)
    with (context.runs / f"{run}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = _checked(run, context)
        if not record.finished:
            say(f"{run}: {'goes on' if (folder / CHECKPOINT).is_file() else 'begins'}")
            record.write(run, context)
            _train(run, context, record)
    return folder


def _checked(run: Run, context: Context) -> Record:
    """Return the run's record, a new one if it has none.

    Raises:
        TrainingFailed: what is there was trained for something else.
    """
    wanted, record, folder = asked(run, context), Record.read(run, context), context.folder(run)
    if not any((folder / name).is_file() for name in (WEIGHTS, CHECKPOINT)):
        return Record(wanted)
    if record is None:
        raise TrainingFailed(
            f"{folder}: has no record of how it was trained; delete it to train it anew"
        )
    if record.asked != wanted:
        other = "; ".join(
            f"{name}: {record.asked.get(name)}, not {value}"
            for name, value in wanted.items()
            if record.asked.get(name) != value
        )
        raise TrainingFailed(
            f"{folder}: was trained for something else ({other}); delete it and {folder.name}.json "
            "to train it anew"
        )
    return record


def _train(run: Run, context: Context, record: Record) -> None:
    """Run `offramp train` to its end, or until the user stops it."""
    log, began_s, before_s = context.runs / f"{run}.log", time.monotonic(), _children_s()
    with log.open("ab") as output:
        code, stopped = _run(_command(run, context), output.fileno())
    wall_s, processor_s = record.seconds
    record.seconds = (
        wall_s + time.monotonic() - began_s,
        processor_s + _children_s() - before_s,
    )
    record.finished = code == 0
    record.write(run, context)
    if code and stopped:
        raise Stopped(f"{run}: stopped; the same command goes on")
    if code:
        end = log.read_text("utf-8", errors="replace").rstrip().splitlines()[-_SHOWN_LINES:]
        raise TrainingFailed(f"{run}: `offramp train` failed; the end of {log}:\n" + "\n".join(end))


def _command(run: Run, context: Context) -> list[str]:
    files = {
        "--encoder": context.encoder(run),
        "--train": context.training_file(run.data),
        "--dev": context.files(run.data)[0],
        "--out": context.folder(run),
    }
    named = [word for name, path in files.items() for word in (name, str(path))]
    resume = ["--resume"] if (context.folder(run) / CHECKPOINT).is_file() else []
    return [*_OFFRAMP, "train", *named, *run.words, "--no-table", *resume]


def _run(command: list[str], output: int) -> tuple[int, bool]:
    """Return the command's exit status, and whether the user stopped it.

    In a session of its own, so that it gets one signal and not the terminal's too: after a second
    one it would end without a checkpoint.
    """
    with (
        stop_on_signal() as stop,
        subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True) as process,
    ):
        try:
            while process.poll() is None and not stop.requested:
                time.sleep(_LOOK_EVERY_S)
            if stop.requested:
                process.send_signal(signal.SIGINT)
            return process.wait(), stop.requested
        except BaseException:
            process.kill()
            raise


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
