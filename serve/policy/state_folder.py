"""The folder of `offramp serve --state`: one server at a time, and its database."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from serve.errors import InvalidRequest, Unavailable
from serve.policy.database import Database
from serve.policy.entry import VersionedPolicy
from serve.policy.model_set import ModelSet
from serve.validation import explain

DATABASE: Final = "offramp.db"
# Where files of earlier releases are put when they have been read.
READ_ONCE: Final = "before-offramp.db"

_POLICIES: Final = ".policy.jsonl"
_COUNTS: Final = ".audits.json"
_MODELS: Final = "models.json"


@contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """Hold the folder of a server's state, which is made if there is none, and yield it.

    Raises:
        InvalidRequest: another server has it, or it cannot be used.
        Unavailable: what it holds cannot be read.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = os.open(folder / "lock", flags, 0o600)
    except OSError as error:
        raise InvalidRequest(f"--state {folder}: {error.strerror}") from None
    with open(lock, "r+b", 0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read(20).decode("ascii", "replace").strip()
            raise InvalidRequest(
                f"--state {folder}: another server, process {holder}, keeps its state there; give "
                "each server a folder of its own"
            ) from None
        file.truncate(0)
        file.write(b"%d\n" % os.getpid())
        database = Database(folder / DATABASE)
        try:
            database.check()
            _read_once(folder, database)
        finally:
            database.close()
        yield folder.resolve()


def _read_once(folder: Path, database: Database) -> None:
    """Take what an earlier release has kept as files, and put the files aside.

    Where this ends half-way, the next start takes the rest.
    """
    for path in sorted(folder.glob(f"*{_POLICIES}")):
        model = path.name.removesuffix(_POLICIES)
        # The first line says which bundle it is about; the last one may be written in part.
        for number, line in enumerate(path.read_bytes().split(b"\n")[1:-1], start=2):
            with _explained(f"{path}: line {number}"):
                database.append(model, VersionedPolicy.model_validate_json(line))
        _put_aside(path)
    for path in sorted(folder.glob(f"*{_COUNTS}")):
        model = path.name.removesuffix(_COUNTS)
        with _explained(str(path)):
            document: dict[str, Any] = json.loads(path.read_bytes())
            if not all(isinstance(alarm, str) for alarm in document.get("alarms", [])):
                raise ValueError("alarms must be texts")
            for replica, counts in document.get("counts", {}).items():
                database.put_counts(model, replica, json.dumps(counts).encode())
            for alarm in document.get("alarms", []):
                database.note_alarm(model, alarm)
        _put_aside(path)
    if (path := folder / _MODELS).exists():
        with _explained(str(path)):
            database.put_model_set(ModelSet.model_validate_json(path.read_bytes()))
        _put_aside(path)


def _put_aside(path: Path) -> None:
    aside = path.parent / READ_ONCE
    aside.mkdir(mode=0o700, exist_ok=True)
    path.rename(aside / path.name)


@contextmanager
def _explained(place: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        said = explain(error) if isinstance(error, ValidationError) else error
        raise Unavailable(f"{place}: {said}; mend it, or move the file away") from None
