"""Training a run once: kept if it is there, resumed if it was stopped."""

import fcntl
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from models.errors import TrainingFailed
from models.experiments.budgets import training_file
from models.experiments.places import Places
from models.experiments.record import (
    WEIGHTS,
    Record,
    Seconds,
    asked,
    dev_file,
    difference,
    encoder_folder,
    options,
)
from models.experiments.run import Run
from models.training.options import CHECKPOINT
from models.training.stop_request import stop_on_signal

_OFFRAMP = (sys.executable, "-c", "from serve.cli import main; main()")
_SHOWN_LINES = 5
_LOOK_EVERY_S = 0.5


class Stopped(Exception):
    """The user has stopped the training; the next call goes on with it."""


def ensure(run: Run, places: Places, say: Callable[[str], None] = print) -> Path:
    """Return the folder of a trained run; train it, and what it starts from, if need be.

    Args:
        run: to be trained.
        places: where everything lies.
        say: is told in a line what is begun.

    Raises:
        Stopped: by Ctrl-C or SIGTERM.
        TrainingFailed: `offramp train` failed, or the folder holds the model of another run.
    """
    if run.start:
        ensure(run.start, places, say)
    places.runs.mkdir(parents=True, exist_ok=True)
    folder = run.folder(places.runs)
    with _held(places.runs / f"{run}.lock", run, say) as lock:
        record = _checked(run, places)
        if not record.finished:
            say(f"{run}: {'goes on' if (folder / CHECKPOINT).is_file() else 'begins'}")
            record.write(run, places)
            _train(run, places, record, lock)
    return folder


def is_finished(run: Run, places: Places) -> bool:
    """Return whether the run's model is there, trained for what the run asks."""
    try:
        record = Record.read(run, places)
        return record is not None and record.finished and record.asked == asked(run, places)
    except TrainingFailed:
        return False


def _checked(run: Run, places: Places) -> Record:
    """Return the run's record, a new one if it has none.

    Raises:
        TrainingFailed: what is there was trained for something else.
    """
    wanted, record, folder = asked(run, places), Record.read(run, places), run.folder(places.runs)
    if not any((folder / name).is_file() for name in (WEIGHTS, CHECKPOINT)):
        return Record(wanted)
    if record is None:
        raise TrainingFailed(
            f"{folder}: has no record of how it was trained; delete it to train it anew"
        )
    if record.asked != wanted:
        raise TrainingFailed(
            f"{folder}: was trained for something else ({difference(wanted, record.asked)}); "
            f"delete it and {folder.name}.json to train it anew"
        )
    return record


def _train(run: Run, places: Places, record: Record, lock: int) -> None:
    """Run `offramp train` to its end, or until the user stops it."""
    log = places.runs / f"{run}.log"
    with log.open("ab") as output:
        began_s, before_s = time.monotonic(), _children_s()
        code = _run(_command(run, places), output.fileno(), lock)
        took = Seconds(time.monotonic() - began_s, _children_s() - before_s)
    record.after(took, finished=code == 0).write(run, places)
    if code is None:
        raise Stopped(f"{run}: stopped; the same command goes on")
    if code:
        raise TrainingFailed(f"{run}: `offramp train` failed; the end of {log}:\n{_end(log)}")


def _command(run: Run, places: Places) -> list[str]:
    folder = run.folder(places.runs)
    files = {
        "--encoder": encoder_folder(run, places),
        "--train": training_file(run.data, places),
        "--dev": dev_file(run, places),
        "--out": folder,
    }
    named = [word for name, path in files.items() for word in (name, str(path))]
    resume = ["--resume"] if (folder / CHECKPOINT).is_file() else []
    return [*_OFFRAMP, "train", *named, *options(run), *resume]


def _run(command: list[str], output: int, lock: int) -> int | None:
    """Return the command's exit status, None if the user stopped it.

    In a session of its own, so that it gets one signal and not the terminal's too: after a second
    one it would end without a checkpoint. It holds the lock as long as it lives.
    """
    with (
        stop_on_signal() as stop,
        subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(lock,),
        ) as process,
    ):
        stopped = False
        try:
            while process.poll() is None:
                if stop.requested and not stopped:
                    stopped = True
                    process.send_signal(signal.SIGINT)
                time.sleep(_LOOK_EVERY_S)
        except BaseException:
            process.kill()
            raise
    return process.returncode if process.returncode == 0 or not stopped else None


@contextmanager
def _held(path: Path, run: Run, say: Callable[[str], None]) -> Iterator[int]:
    """Inside the block, keep other processes from training the run; yield the lock's descriptor."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{run}: another process is training it; waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _end(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").rstrip().splitlines()
    return "\n".join(lines[-_SHOWN_LINES:])
