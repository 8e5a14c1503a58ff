"""Training a run once: kept if it is there, resumed if it was stopped."""

import fcntl
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from models.errors import TrainingFailed
from models.experiments.context import Context
from models.experiments.record import WEIGHTS, Record, asked
from models.experiments.run import Run
from models.training.options import CHECKPOINT
from models.training.stop_request import stop_on_signal

_OFFRAMP = (sys.executable, "-c", "from serve.cli import main; main()")
_SHOWN_LINES = 5
_LOOK_EVERY_S = 0.5


class Stopped(Exception):
    """The user has stopped the training; the next call goes on with it."""


def ensure(run: Run, context: Context, say: Callable[[str], None] = print) -> Path:
    """Return the folder of a trained run; train it, and what it starts from, if need be.

    Another process that trains the same run is waited for.

    Args:
        run: to be trained.
        context: where everything lies.
        say: is told in a line what is begun.

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
    return [*_OFFRAMP, "train", *named, *run.words, *resume]


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
