"""The store of one machine: an SQLite database, in the memory of the process or in a file.

All processes of a server share the file. A change is on the disk before it is acknowledged, and
leaves nothing behind if the disk does not take it or its process is killed.
"""

import errno
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from serve.errors import Unavailable
from serve.policy.entry import VersionedPolicy
from serve.policy.model_set import ModelSet
from serve.policy.store import KEPT_COUNTS, Log, parsed, too_many
from serve.validation import explain

# For one change, until other processes have made theirs.
_TIMEOUT_S: Final = 5.0
# Names of alarms that are kept for each model.
_MOST_ALARMS: Final = 256
_LAYOUT: Final = 1
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS policies
    (model TEXT, version INTEGER, action TEXT, entry BLOB, PRIMARY KEY (model, version));
CREATE TABLE IF NOT EXISTS counts
    (model TEXT, replica TEXT, counts BLOB, PRIMARY KEY (model, replica));
CREATE TABLE IF NOT EXISTS alarms (model TEXT, alarm TEXT, PRIMARY KEY (model, alarm));
CREATE TABLE IF NOT EXISTS model_sets (version INTEGER PRIMARY KEY, document BLOB);
"""
# Ends of the names of files that SQLite opens beside the database.
_BESIDE: Final = ("journal", "wal", "shm")


class Database:
    """A `serve.policy.store.Store`. Any thread."""

    def __init__(self, path: Path | None = None) -> None:
        """Open a file, which is made if there is none; None keeps all in memory.

        Raises:
            Unavailable: the file cannot be used; the message says why.
        """
        self._path, self._using = path, threading.Lock()
        self._advice = "mend that, or move the file away to start from the bundle's own policy"
        with self._working():
            if path:
                with suppress(FileExistsError):
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                for name in (path.name, *(f"{path.name}-{end}" for end in _BESIDE)):
                    with suppress(FileNotFoundError):
                        _check_mode(name, path.with_name(name).lstat().st_mode)
            # Every connection in memory is a database of its own, so threads share one.
            self._db = sqlite3.connect(
                path or ":memory:", _TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            # The end of the rollback journal is on the disk too when a change is acknowledged.
            self._db.execute("PRAGMA synchronous = EXTRA")
            [[layout]] = self._db.execute("PRAGMA user_version")
        if layout > _LAYOUT:
            raise Unavailable(
                f"{path} was written by a later release; start that one, or move the file away"
            )
        with self._working():
            self._db.executescript(f"{_TABLES} PRAGMA user_version = {_LAYOUT};")
        self._advice = "nothing has changed"

    def close(self) -> None:
        """Let the file go."""
        self._db.close()

    def check(self) -> None:
        """Read all that is kept.

        Raises:
            Unavailable: a part of it cannot be read; the message names it.
        """
        with self._working():
            [[found], *_] = self._db.execute("PRAGMA quick_check")
            rows = self._db.execute("SELECT model, version, entry FROM policies").fetchall()
        if found != "ok":
            raise Unavailable(f"{self._path} is damaged: {found}; restore it, or move it away")
        for model, version, entry in rows:
            try:
                VersionedPolicy.model_validate_json(entry)
            except ValidationError as error:
                raise Unavailable(
                    f"{self._path}: version {version} of the policy of {model}: {explain(error)}; "
                    "start the release that has written it, or move the file away to start from "
                    "the bundle's own policy"
                ) from None
        self.model_set()

    def policies(self, model: str, after: int = 0) -> Log:
        with self._working():
            rows = self._db.execute(
                "SELECT version, entry FROM policies WHERE model = ? AND version > ? "
                "ORDER BY version",
                (model, after),
            ).fetchall()
        found = [parsed(model, version, entry) for version, entry in rows]
        return Log(rows[-1][0] if rows else after, [entry for entry in found if entry])

    def append(self, model: str, entry: VersionedPolicy) -> bool:
        with self._changing():
            kept = self._db.execute(
                "SELECT version, action FROM policies WHERE model = ? ORDER BY version", (model,)
            ).fetchall()
            if kept and entry.version <= kept[-1][0]:
                return False
            kept.append((entry.version, entry.action))
            document = entry.model_dump_json().encode()
            self._db.execute(
                "INSERT INTO policies VALUES (?, ?, ?, ?)", (model, *kept[-1], document)
            )
            baselines = [version for version, action in kept if action == "baseline"]
            for version in too_many([version for version, _ in kept], baselines):
                self._db.execute(
                    "DELETE FROM policies WHERE model = ? AND version = ?", (model, version)
                )
            return True

    def put_counts(self, model: str, replica: str, counts: bytes) -> None:
        with self._changing():
            # What is replaced gets a new row, so that rows are in the order of their changes.
            self._db.execute("REPLACE INTO counts VALUES (?, ?, ?)", (model, replica, counts))
            self._keep_newest("counts", model, KEPT_COUNTS)

    def counts(self, model: str) -> dict[str, bytes]:
        with self._working():
            rows = self._db.execute("SELECT replica, counts FROM counts WHERE model = ?", (model,))
            return dict(rows.fetchall())

    def note_alarm(self, model: str, alarm: str) -> bool:
        with self._changing():
            added = self._db.execute("INSERT OR IGNORE INTO alarms VALUES (?, ?)", (model, alarm))
            self._keep_newest("alarms", model, _MOST_ALARMS)
            return added.rowcount > 0

    def model_set(self) -> ModelSet | None:
        with self._working():
            rows = self._db.execute("SELECT document FROM model_sets").fetchall()
        try:
            return ModelSet.model_validate_json(rows[0][0]) if rows else None
        except ValidationError as error:
            raise Unavailable(
                f"{self._path}: the set of models cannot be read: {explain(error)}; start the "
                f"release that has written it, or `sqlite3 {self._path} 'DELETE FROM model_sets'` "
                "to start from the bundles of the command line"
            ) from None

    def put_model_set(self, wanted: ModelSet) -> bool:
        with self._changing():
            [[newest]] = self._db.execute("SELECT coalesce(max(version), -1) FROM model_sets")
            if wanted.version <= newest:
                return False
            self._db.execute("DELETE FROM model_sets")
            document = wanted.model_dump_json(by_alias=True).encode()
            self._db.execute("INSERT INTO model_sets VALUES (?, ?)", (wanted.version, document))
            return True

    def _keep_newest(self, table: str, model: str, number: int) -> None:
        self._db.execute(
            f"DELETE FROM {table} WHERE model = ?1 AND rowid NOT IN (SELECT rowid FROM {table} "
            "WHERE model = ?1 ORDER BY rowid DESC LIMIT ?2)",
            (model, number),
        )

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Inside the block no other thread or process changes anything; all of it, or nothing."""
        with self._working():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Inside the block no other thread uses the connection."""
        try:
            with self._using:
                yield
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(
                f"the store of policies, {self._path or 'in memory'}, cannot be used: "
                f"{_described(error)}; {self._advice}"
            ) from None


def _described(error: OSError | sqlite3.Error) -> str:
    if isinstance(error, OSError):
        return str(error.strerror)
    if getattr(error, "sqlite_errorname", "") == "SQLITE_READONLY_DBMOVED":
        return (
            "the file was moved away while the server runs; put it back, or start the server again"
        )
    return str(error)


def _check_mode(name: str, mode: int) -> None:
    if not stat.S_ISREG(mode):  # a pipe would hang the start
        raise OSError(errno.EINVAL, f"{name} is no regular file")
    if mode & stat.S_IWOTH:
        raise OSError(errno.EPERM, f"every user of the machine may write to {name}")
