"""The file of log lines: appended to by any number of processes, and moved away by logrotate."""

from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Final

from serve.errors import InvalidRequest
from serve.log_output import Write, write_stderr

# In the name of a file: the replica that writes.
_REPLICA: Final = "{replica}"


class LogFile(WatchedFileHandler):
    """A file that is opened again when its name stands for another one, as logrotate makes it.

    A batch of lines is one write at the end of the file, which on a local disk no other process
    interrupts.
    """

    def _open(self) -> Any:
        return open(self.baseFilename, "ab", buffering=0)

    def write(self, lines: bytes) -> None:
        """Append lines.

        Raises:
            OSError: not all of them were written.
        """
        self.reopenIfNeeded()
        file: Any = self.stream
        left = memoryview(lines)
        while left:
            left = left[file.write(left) :]


def log_output(path: Path | None, replica: str = "") -> Write:
    """Return what takes log lines: a file, or stderr.

    Args:
        path: the file's path, with the replica's name in the place of `{replica}`; None for stderr.
        replica: the replica's name.

    Raises:
        InvalidRequest: the file cannot be written to.
    """
    if path is None:
        return write_stderr
    if _REPLICA in str(path) and not replica:
        raise InvalidRequest(
            f"the log file {path} has lines of all replicas here: leave out {_REPLICA}"
        )
    try:
        return LogFile(str(path).replace(_REPLICA, replica)).write
    except OSError as error:
        raise InvalidRequest(
            f"the log file {path} cannot be written to: {error.strerror}; choose another with "
            "`--log-file` (`log_file`), or leave it out for stderr"
        ) from None
