"""Writing a folder atomically: it appears complete or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from serve.errors import OfframpError


class FolderKind(NamedTuple):
    """A kind of folder that a command writes, and may replace.

    Attributes:
        name: for messages, without article.
        marker: a file that every such folder has.
        error: raised where the folder cannot be written.
    """

    name: str
    marker: str
    error: type[OfframpError]


def check_replaceable(out: Path, kind: FolderKind) -> None:
    """Raise the kind's error unless `out` is of the kind, is empty, or can be made."""
    check_writable(
        next((each for each in out.absolute().parents if each.exists()), out), kind.error
    )
    if not out.exists():
        return
    if not out.is_dir() or (any(out.iterdir()) and not (out / kind.marker).is_file()):
        raise kind.error(f"{out} exists and is no {kind.name}: choose another place for --out")


def check_writable(folder: Path, error: type[OfframpError]) -> None:
    """Raise the error unless files can be made in a folder."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as reason:
        raise error(
            f"{folder} cannot be written ({reason.strerror}): choose another place"
        ) from None


@contextmanager
def staged(out: Path, kind: FolderKind) -> Iterator[Path]:
    """Yield an empty folder beside `out` that replaces `out` if the block succeeds.

    If the block raises, the new folder is removed and `out` is unchanged. The kind's error is
    raised if `out` exists and is of another kind, or cannot be written.
    """
    check_replaceable(out, kind)
    workspace = _sibling(out, kind)
    try:
        # Only the owner may read a folder of mkdtemp, but others may read what is written.
        fresh = workspace / "new"
        fresh.mkdir()
        yield fresh
        if out.exists():
            out.rename(workspace / "old")
        fresh.rename(out)
    finally:
        _put_back(workspace / "old", out)
        shutil.rmtree(workspace)


def _sibling(out: Path, kind: FolderKind) -> Path:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise kind.error(
            f"{out} cannot be written ({error.strerror}): choose another place for --out"
        ) from error


def _put_back(old: Path, out: Path) -> None:
    if old.exists() and not out.exists():
        old.rename(out)
