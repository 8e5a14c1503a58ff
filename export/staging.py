"""Writing a folder atomically: it appears complete or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from export.errors import ExportFailed
from serve.bundle.loader import MANIFEST


def check_replaceable(out: Path) -> None:
    """Raise `ExportFailed` unless `out` is a bundle, an empty folder, or does not exist."""
    if not out.exists():
        return
    if not out.is_dir() or (any(out.iterdir()) and not (out / MANIFEST).is_file()):
        raise ExportFailed(f"{out} exists and is no bundle: choose another place for --out")


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Yield an empty folder beside `out` that replaces `out` if the block succeeds.

    If the block raises, the new folder is removed and `out` is unchanged.

    Raises:
        ExportFailed: `out` exists and is no bundle, or cannot be written.
    """
    check_replaceable(out)
    workspace = _sibling(out)
    try:
        # Only the owner may read a folder of mkdtemp, but other users may serve the bundle.
        fresh = workspace / "new"
        fresh.mkdir()
        yield fresh
        if out.exists():
            out.rename(workspace / "old")
        fresh.rename(out)
    finally:
        _put_back(workspace / "old", out)
        shutil.rmtree(workspace)


def _sibling(out: Path) -> Path:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise ExportFailed(
            f"{out} cannot be written ({error.strerror}): choose another place for --out"
        ) from error


def _put_back(old: Path, out: Path) -> None:
    if old.exists() and not out.exists():
        old.rename(out)
