"""What outlives a server on one machine, as files in a folder: `offramp serve --state`.

All processes of the server read and write the files; a line is on the disk before its change is
acknowledged.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Final

from pydantic import ValidationError

from serve.errors import InvalidRequest, Unavailable
from serve.policy.entry import VersionedPolicy
from serve.policy.log_file import LogFile, set_aside, write_whole
from serve.policy.model_set import ModelSet, baseline_of, same_deployment
from serve.policy.store import Versions, put_newest
from serve.validation import explain

# For one change, until others have made theirs.
_TIMEOUT_S: Final = 5.0
_POLL_EVERY_S: Final = 0.002
# Names of alarms that have been told.
_MOST_ALARMS: Final = 256


class FileStore:
    """A `serve.policy.store.Store` in a folder, for servers that serve these bundles.

    `MODEL.policy.jsonl` has the log of a model's policies, and `MODEL.audits.json` its counts
    and the alarms that have been told. `models.json` says which models there are.
    """

    def __init__(self, folder: Path, bundles: Mapping[str, str]) -> None:
        """Take an existing folder, and the sha256 of the bundle of each model at the start."""
        self._folder, self._models = folder, folder / "models.json"
        self._baseline = baseline_of(bundles)
        self._bundles: dict[str, str] = {}
        self._counts: dict[str, Path] = {}
        self._logs: dict[str, LogFile] = {}
        self._reading = Lock()
        for model, sha256 in bundles.items():
            self._know(model, sha256)

    def _know(self, model: str, sha256: str) -> None:
        self._bundles[model], owner = sha256, {"model": model, "bundle": sha256}
        self._counts[model] = self._folder / f"{model}.audits.json"
        self._logs[model] = LogFile(self._folder / f"{model}.policy.jsonl", owner)

    def check(self) -> None:
        """Read all files, and set aside those of other bundles.

        Raises:
            Unavailable: one cannot be read or written; the message says what is wrong with it.
        """
        found = self.model_set()
        if found and same_deployment(found.baseline, self._baseline):
            for model, sha256 in found.pins.items():
                self._know(model, sha256)
        with self._changing():
            for model in self._bundles:
                self._check(model)

    def own(self, model: str, bundle: str) -> None:
        with self._changing(), self._reading:
            if self._bundles.get(model) != bundle:
                self._know(model, bundle)
                self._check(model)

    def _check(self, model: str) -> None:
        self._logs[model].check()
        counts = self._counts[model]
        if counts.exists() and self._document(model).get("bundle") != self._bundles[model]:
            set_aside(counts)

    def model_set(self) -> ModelSet | None:
        try:
            return ModelSet.model_validate_json(self._models.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            said = explain(error) if isinstance(error, ValidationError) else error.strerror
            raise Unavailable(
                f"{self._models} cannot be read: {said}; mend it, or move it away to start from "
                "the bundles of the command line"
            ) from None

    def put_model_set(self, wanted: ModelSet) -> bool:
        with self._changing():
            found = self.model_set()
            if found and wanted.version <= found.version:
                return False
            write_whole(self._models, wanted.model_dump_json(by_alias=True).encode())
            return True

    def newest_version(self, model: str) -> int:
        newest = self.latest(model)
        return newest.version if newest else 0

    def latest(self, model: str) -> VersionedPolicy | None:
        with self._log(model) as versions:
            return versions.newest

    def append(self, model: str, entry: VersionedPolicy) -> bool:
        with self._changing():
            if entry.version <= self.newest_version(model):
                return False
            self._logs[model].write(entry)
            return True

    def history(self, model: str, limit: int) -> list[VersionedPolicy]:
        with self._log(model) as versions:
            return versions.history(limit)

    def entry(self, model: str, version: int) -> VersionedPolicy | None:
        with self._log(model) as versions:
            return versions.entry(version)

    def put_counts(self, model: str, replica: str, counts: bytes) -> None:
        with self._changing():
            kept = self.counts(model)
            put_newest(kept, replica, counts)
            self._put(model, counts={name: json.loads(each) for name, each in kept.items()})

    def note_alarm(self, model: str, alarm: str) -> bool:
        with self._changing():
            noted = self._document(model).get("alarms", [])
            if alarm in noted:
                return False
            self._put(model, alarms=[*noted, alarm][-_MOST_ALARMS:])
            return True

    def _put(self, model: str, **changed: Any) -> None:
        named = {"model": model, "bundle": self._bundles[model]}
        document = {**self._document(model), **named, **changed}
        write_whole(self._counts[model], json.dumps(document).encode())

    def counts(self, model: str) -> dict[str, bytes]:
        kept = self._document(model).get("counts", {})
        return {
            replica: json.dumps(each, separators=(",", ":")).encode()
            for replica, each in kept.items()
        }

    def _document(self, model: str) -> dict[str, Any]:
        path = self._counts[model]
        try:
            document = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise Unavailable(f"{path} cannot be read: {error}") from None
        if isinstance(document, dict) and isinstance(document.get("counts", {}), dict):
            return document
        raise Unavailable(f"{path}: holds no counts of audits; restore it, or move it away")

    @contextmanager
    def _log(self, model: str) -> Iterator[Versions]:
        """Inside the block no other thread reads the log of this process."""
        with self._reading, self._working():
            log = self._logs.get(model)
            yield log.read() if log else Versions()  # of a model that is about to be loaded

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Inside the block no other thread or process changes the files."""
        with self._working(), open(self._folder / ".changes", "ab") as file:
            _lock(file)
            yield

    @contextmanager
    def _working(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(
                f"the store of policies, the folder {self._folder}, cannot be used: "
                f"{error.strerror}; the policy stays as it is"
            ) from None


@contextmanager
def opened(folder: Path, bundles: Mapping[str, str]) -> Iterator[Path]:
    """Hold the folder of a server's state, which is made if there is none, and yield it.

    Raises:
        InvalidRequest: another server has it, or it cannot be used.
        Unavailable: a file in it cannot be used.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
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
        FileStore(folder, bundles).check()
        yield folder.resolve()


def _lock(file: BinaryIO) -> None:
    """Lock a file, for as long as it is open."""
    end_s = time.monotonic() + _TIMEOUT_S
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() > end_s:
            raise Unavailable(
                "the store of policies is being changed for too long: the policy stays as it is; "
                "try again later"
            )
        time.sleep(_POLL_EVERY_S)
