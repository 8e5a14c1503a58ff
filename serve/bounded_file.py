"""Reading a file that may be anything: no device, no pipe, and not more than fits."""

import os
import stat
from pathlib import Path


class UnfitFile(ValueError):
    """The file is no regular file, or is too large; the message says which, without the path."""


def read_file(path: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        UnfitFile: it is a folder, a pipe or a device, or has more bytes.
        OSError: it cannot be read.
    """
    # A pipe that nothing writes to would block the call that opens it.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnfitFile("is no regular file")
        if status.st_size > most_bytes:
            raise UnfitFile(f"has {status.st_size} bytes; at most {most_bytes} are read")
        return file.read()
