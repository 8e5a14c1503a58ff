"""The folder of `offramp serve --state`: one server at a time, and its database."""

import fcntl
import json
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from serve.bounded_file import UnfitFile, read_file
from serve.errors import InvalidRequest, Unavailable
from serve.policy.database import Database
from serve.policy.entry import VersionedPolicy
from serve.policy.model_set import ModelSet
from serve.validation import explain

log = logging.getLogger(__name__)

DATABASE: Final = "offramp.db"
# Where files of earlier releases are put when they have been read.
READ_ONCE: Final = "before-offramp.db"

_POLICIES: Final = ".policy.jsonl"
_COUNTS: Final = ".audits.json"
_MODELS: Final = "models.json"
_MOST_BYTES: Final = 256 << 20

_Part = TypeVar("_Part", bound=BaseModel)


@contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """Hold the folder of a server's state, which is made if there is none, and yield it.

    Raises:
        InvalidRequest: another server has it, or it cannot be used.
        Unavailable: what it holds cannot be read.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & stat.S_IWOTH:
            raise InvalidRequest(
                f"--state {folder}: every user of the machine may write there; `chmod o-w` it, or "
                "give a folder inside it, which is made"
            )
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = os.open(folder / "lock", flags, 0o600)
        if not stat.S_ISREG(os.fstat(lock).st_mode):
            os.close(lock)
            raise InvalidRequest(f"--state {folder}: lock is no regular file; remove it")
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


class _FirstLine(BaseModel):
    """The first line of a file of policies."""

    model: str
    bundle: str


class _Audits(BaseModel):
    """A file of counts and alarms."""

    counts: dict[str, Any] = {}
    alarms: list[str] = []


def _read_once(folder: Path, database: Database) -> None:
    """Take what an earlier release has kept as files, and put the files aside.

    All files are read before anything is taken of them: of a damaged file nothing may stay behind.
    Where this ends half-way, the next start takes the rest.
    """
    policies = {path: _history(path) for path in sorted(folder.glob(f"*{_POLICIES}"))}
    audits = {path: _parsed(path, _Audits) for path in sorted(folder.glob(f"*{_COUNTS}"))}
    models = {path: _parsed(path, ModelSet) for path in folder.glob(_MODELS)}
    for path, entries in policies.items():
        for entry in entries:
            database.append(path.name.removesuffix(_POLICIES), entry)
        _put_aside(path)
    for path, found in audits.items():
        model = path.name.removesuffix(_COUNTS)
        for replica, counts in found.counts.items():
            database.put_counts(model, replica, json.dumps(counts).encode())
        for alarm in found.alarms:
            database.note_alarm(model, alarm)
        _put_aside(path)
    for path, wanted in models.items():
        database.put_model_set(wanted)
        _put_aside(path)


def _history(path: Path) -> list[VersionedPolicy]:
    """Return the versions in a file of policies, without a last line that was written in part."""
    first, *lines = _content(path).split(b"\n")
    _parsed(f"{path}: line 1", _FirstLine, first)
    last, entries = lines.pop() if lines else b"", list[VersionedPolicy]()
    for number, line in enumerate(lines, start=2):
        entry = _parsed(f"{path}: line {number}", VersionedPolicy, line)
        if entries and entry.version <= entries[-1].version:
            raise _damaged(f"{path}: line {number}", "its version is not above the one before")
        entries.append(entry)
    if last:
        log.warning("%s: the last line was written in part, and is dropped", path)
    return entries


def _parsed(place: Path | str, kind: type[_Part], content: bytes | None = None) -> _Part:
    """Return what a file, or a line of one, says."""
    try:
        return kind.model_validate_json(_content(Path(place)) if content is None else content)
    except ValidationError as error:
        raise _damaged(place, explain(error)) from None


def _content(path: Path) -> bytes:
    try:
        return read_file(path, _MOST_BYTES)
    except (UnfitFile, OSError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise _damaged(path, str(said)) from None


def _damaged(place: Path | str, problem: str) -> Unavailable:
    problem = problem.replace("the body is", "it is")
    return Unavailable(f"{place}: {problem}; mend it, or move the file away")


def _put_aside(path: Path) -> None:
    aside = path.parent / READ_ONCE
    aside.mkdir(mode=0o700, exist_ok=True)
    path.rename(aside / path.name)
