"""What libraries print becomes log lines."""

import io
import logging
import re
import threading
from typing import Final

log = logging.getLogger(__name__)

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_MAX_CHARS: Final = 8192


class Printed(io.TextIOBase):
    """Stands for stdout or stderr: every line that is printed there is logged as a warning."""

    def __init__(self) -> None:
        self._begun, self._writing = "", threading.Lock()

    def write(self, text: str) -> int:
        """Log the lines that are complete now."""
        with self._writing:
            *lines, self._begun = (self._begun + text).split("\n")
            if len(self._begun) > _MAX_CHARS:
                lines, self._begun = [*lines, self._begun], ""
        for line in lines:
            if plain := _COLOURS.sub("", line).strip():
                log.warning("%s", plain[:_MAX_CHARS])
        return len(text)

    def writable(self) -> bool:
        return True
