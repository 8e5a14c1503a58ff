"""Files of a bundle that calibration replaces: each is whole at all times, and all fit together."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pydantic_core import from_json, to_json

from serve.bundle.calibration import Calibration
from serve.bundle.loader import CALIBRATION, MANIFEST, sha256_of
from serve.bundle.recording import CERTIFYING

README = "README.md"


def replace_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Replace files of a folder in this order; SIGINT and SIGTERM wait until all are replaced.

    Until then nothing has changed. Only a kill or a crash between two renames leaves some of the
    files new and others old, see `repair`.
    """
    fresh = {name: folder / f".{name}.new" for name in contents}
    try:
        for name, path in fresh.items():
            _write(path, contents[name])
        with _signals_deferred():
            for name, path in fresh.items():
                rename(path, folder / name)
    finally:
        for path in fresh.values():
            path.unlink(missing_ok=True)


def repair(folder: Path) -> bool:
    """Bring a manifest up to date after a calibration was killed while it replaced files.

    Only the hashes of what a calibration writes are corrected, and only if it can be read.
    Loading the bundle verifies, and explains, everything else.

    Returns:
        Whether the manifest was out of date.
    """
    try:
        manifest = from_json((folder / MANIFEST).read_bytes())
        Calibration.model_validate_json((folder / CALIBRATION).read_bytes())
        files = manifest["files"]
        ours = [CALIBRATION, README, *(n for n in files if n.startswith(CERTIFYING))]
        listed = {name: sha256_of(folder / name) for name in ours}
        found = {name: sha for name, sha in listed.items() if files.get(name, sha) != sha}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False
    if not found:
        return False
    manifest["files"] = files | found
    replace_files(folder, {MANIFEST: to_json(manifest, indent=2)})
    return True


def rename(source: Path, target: Path) -> None:
    """Put a file in the place of another."""
    source.replace(target)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _signals_deferred() -> Iterator[None]:
    came: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        came.append(number)

    previous = {n: signal.signal(n, defer) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)
