"""The file of log lines: appended to by any number of processes, and moved away by logrotate."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from serve.errors import InvalidRequest
from serve.log_output import Write, write_stderr

# In the name of a file: the replica that writes.
REPLICA: Final = "{replica}"
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_MODE: Final = 0o640


class LogFile:
    """A file that is opened again when its name stands for another one.

    A batch of lines is one write at the end of the file, which on a local disk no other process
    interrupts.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            OSError: it cannot be written to.
        """
        self._path = path
        self._file = _open(path)
        self._torn = False  # the last write has ended within a line

    def write(self, lines: bytes) -> None:
        """Append lines.

        Raises:
            OSError: not all of them were written.
        """
        self._reopen()
        whole, num_written = b"\n" + lines if self._torn else lines, 0
        try:
            while num_written < len(whole):
                num_written += os.write(self._file, memoryview(whole)[num_written:])
        finally:
            if num_written:
                self._torn = whole[num_written - 1 : num_written] != b"\n"

    def _reopen(self) -> None:
        with suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._file)):
                return
        file = _open(self._path)
        os.close(self._file)
        self._file, self._torn = file, False


def log_output(path: Path | None, replica: str = "") -> Write:
    """Return what takes log lines: a file, or stderr.

    Args:
        path: of the file, with the replica's name in the place of `REPLICA`; None for stderr.
        replica: its name.

    Raises:
        InvalidRequest: the file cannot be written to.
    """
    if path is None:
        return write_stderr
    if REPLICA in str(path) and not replica:
        raise InvalidRequest(
            f"the log file {path} has lines of all replicas here: leave out {REPLICA}"
        )
    try:
        return LogFile(Path(str(path).replace(REPLICA, replica))).write
    except OSError as error:
        raise InvalidRequest(
            f"the log file {path} cannot be written to: {error.strerror}; choose another with "
            "`--log-file` (`log_file`), or leave it out for stderr"
        ) from None


def _open(path: Path) -> int:
    # To open a named pipe without a reader would hold up the start for ever.
    file = os.open(path, _FLAGS | os.O_NONBLOCK, _MODE)
    os.set_blocking(file, True)
    return file
