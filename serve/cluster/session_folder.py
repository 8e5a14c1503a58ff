"""The folder of Ray's sockets, logs and token: one per server, closed to other users.

Ray makes its folders with mode 777, as its processes may be of several users. Here they lie in one
with mode 700. A lock file in it is held as long as the server lives, and given up by the kernel
when the server is killed. So the next start knows which folders are left over.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from serve.errors import Unavailable

_PREFIX, _LOCK = "offramp-", "lock"
# A session begins with less than 1 MB; its logs grow.
_LEAST_FREE_BYTES = 8 * 2**20


@contextmanager
def session_folder() -> Iterator[Path]:
    """Sweep what killed servers have left, and yield a new folder, removed in the end.

    After an exception it stays for its logs, and the next start removes it.

    Raises:
        Unavailable: the folder cannot be made, or its disk is full.
    """
    parent = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp").absolute()
    _sweep(parent)
    check_space(parent)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock = _take_lock(folder)
    except OSError as error:
        raise Unavailable(
            f"Ray does not start: no folder can be made in {parent}: {error.strerror}; "
            "set RAY_TMPDIR to another one"
        ) from None
    with lock:
        yield folder
        _remove(folder)


def check_space(parent: Path) -> None:
    """Raise `Unavailable` if the disk is full: Ray would only say that it waits for a file."""
    with suppress(OSError):
        disk = os.statvfs(parent)
        no_inodes = disk.f_files and not disk.f_favail
        if no_inodes or disk.f_bavail * disk.f_frsize < _LEAST_FREE_BYTES:
            raise Unavailable(
                f"Ray does not start: the disk of {parent} is full, and Ray's session needs "
                f"{_LEAST_FREE_BYTES >> 20} MiB there; make room, or set RAY_TMPDIR to a folder "
                "on another disk"
            )


def _take_lock(folder: Path) -> IO[bytes]:
    """Return the lock file, locked. It gets its name when it is: until then none sweeps it."""
    new = folder / "new"
    file = new.open("xb")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(folder / _LOCK)
    return file


def _sweep(parent: Path) -> None:
    """Remove this user's folders whose server does not live any more."""
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        # Never through a link, nor what another user may have put there.
        with suppress(OSError):
            found = lock.parent.lstat()
            if found.st_uid != os.geteuid() or found.st_mode != 0o40700:
                continue
            with open(os.open(lock, os.O_RDWR | os.O_NOFOLLOW), "rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(lock.parent)


def _remove(folder: Path) -> None:
    """Remove a folder, the lock last: what cannot be removed now is swept later."""
    for path in folder.iterdir():
        if path.name != _LOCK:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    if [path.name for path in folder.iterdir()] == [_LOCK]:
        shutil.rmtree(folder, ignore_errors=True)
