"""A log of policies in a file: a line that says whose it is, then one JSON object for each entry.

Lines are only added, until there are twice as many as are kept. Then a new file takes the place.
"""

import json
import logging
import os
from glob import escape
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import ValidationError

from serve.errors import Unavailable
from serve.policy.entry import VersionedPolicy
from serve.policy.store import KEPT_VERSIONS, Versions
from serve.validation import explain

log = logging.getLogger(__name__)

_MOST_ENTRIES: Final = 2 * KEPT_VERSIONS
# Files of other bundles. Each time that a model gets another bundle, one is set aside.
_KEPT_ASIDE: Final = 20


class LogFile:
    """One model's log. Only one thread at a time may read, and only one of all processes write."""

    def __init__(self, path: Path, owner: dict[str, str]) -> None:
        """Take a path, where there need be no file yet, and what its first line says."""
        self._path, self._owner = path, owner
        self._start_anew(b"")

    def read(self) -> Versions:
        """Return all entries, those that other processes have added since the last call included.

        Raises:
            Unavailable: a line is no entry.
        """
        if not self._path.exists():
            self._start_anew(b"")
            return self._versions
        with open(self._path, "rb") as file:
            header, size = file.readline(), os.fstat(file.fileno()).st_size
            if header != self._header or size < self._num_bytes:
                self._start_anew(header)
            file.seek(self._num_bytes)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is being written, or was when its process ended
                self._take(line)
        return self._versions

    def check(self) -> None:
        """Read the file; set it aside if its owner is another one, and mend its end.

        Raises:
            Unavailable: a line is no entry.
        """
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            other = self._owner_in(file.readline()) != self._owner
        if other:
            set_aside(self._path)
            return
        self.read()
        if self._path.stat().st_size > self._num_bytes:
            log.warning("%s: the last line was written in part, and is dropped", self._path)
            os.truncate(self._path, self._num_bytes)

    def write(self, entry: VersionedPolicy) -> None:
        """Add an entry, and return when it is on the disk.

        Raises:
            OSError: it was not added.
        """
        line = entry.model_dump_json().encode()
        if 0 < self._num_entries < _MOST_ENTRIES:
            self._add(line + b"\n")
            return
        # No two files of a log have the same first line, so that processes can tell them apart.
        header = json.dumps({**self._owner, "written_with_version": entry.version}).encode()
        kept = (header, *self._versions.lines(), line, b"")
        write_whole(self._path, b"\n".join(kept))

    def _add(self, line: bytes) -> None:
        with open(self._path, "r+b", buffering=0) as file:
            # What was written in part goes, and so does this line if it cannot be written.
            file.truncate(self._num_bytes)
            try:
                file.seek(self._num_bytes)
                _write_all(file, line)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(self._num_bytes)
                raise

    def _start_anew(self, header: bytes) -> None:
        self._header, self._num_bytes, self._num_entries = header, len(header), 0
        self._versions = Versions()

    def _take(self, line: bytes) -> None:
        self._versions.add(self._entry(line), line[:-1])
        self._num_entries += 1
        self._num_bytes += len(line)

    def _entry(self, line: bytes) -> VersionedPolicy:
        try:
            entry = VersionedPolicy.model_validate_json(line)
        except ValidationError as error:
            raise self._wrong(explain(error).replace("the body is not JSON", "not JSON")) from None
        newest = self._versions.newest
        if newest and entry.version <= newest.version:
            raise self._wrong(f"version {entry.version} comes after {newest.version}")
        return entry

    def _wrong(self, what: str) -> Unavailable:
        return Unavailable(
            f"{self._path}: line {self._num_entries + 2}: {what}; mend the line, or move the file "
            "away to start from the bundle's own policy"
        )

    def _owner_in(self, header: bytes) -> dict[str, str]:
        try:
            said = json.loads(header)
            return {name: said[name] for name in self._owner}
        except (ValueError, TypeError, KeyError):
            raise Unavailable(
                f"{self._path}: line 1: must be JSON that says model and bundle; mend it, or move "
                "the file away to start from the bundle's own policy"
            ) from None


def set_aside(path: Path) -> None:
    """Rename a file of another bundle; the last ones that were renamed are kept."""
    kept = sorted(path.parent.glob(f"{escape(path.name)}.old*"), key=_number)
    number = _number(kept[-1]) + 1 if kept else 1
    aside = path.with_name(f"{path.name}.old.{number}" if kept else f"{path.name}.old")
    path.rename(aside)
    for old in kept[: 1 - _KEPT_ASIDE]:
        old.unlink(missing_ok=True)
    log.warning("%s is of another bundle; it is kept as %s and not used", path, aside.name)


def _number(aside: Path) -> int:
    number = aside.suffix.removeprefix(".")
    return int(number) if number.isdecimal() else 1


def write_whole(path: Path, content: bytes) -> None:
    """Put a file in the place of another one, whole or not at all, on the disk in the end."""
    part = path.with_name(f".{path.name}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", 0) as file:
        _write_all(file, content)
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _write_all(file: BinaryIO, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
