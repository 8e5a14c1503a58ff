"""Says on the command's own output why fewer replicas run than were asked for."""

import logging
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ray.serve.schema import DeploymentDetails

log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 2.0
# The class of an exception of ours, whose message is a sentence.
_OWN_ERROR: Final = re.compile(r"^serve\.errors\.\w+: ")


class MissingReplicas:
    """Tells what Ray Serve says of replicas that do not start, once for each reason."""

    def __init__(
        self, details: Callable[[], "DeploymentDetails"], warn: Callable[[str], None]
    ) -> None:
        """Take what tells the state of the deployment, which may raise anything, and what warns."""
        self._details, self._warn = details, warn
        self._told = ""

    def watch(self, ended: threading.Event) -> None:
        """Look again and again until the event."""
        while not ended.wait(_LOOK_EVERY_S):
            try:
                self.look()
            except Exception as error:  # Ray raises many kinds
                log.debug("Ray Serve does not tell how many replicas run: %s", error)

    def look(self) -> None:
        """Tell what is new."""
        details = self._details()
        wanted = details.target_num_replicas
        running = sum(replica.state == "RUNNING" for replica in details.replicas)
        reason = last_line(details.message)
        if running >= wanted:
            if self._told:
                self._warn(f"all {wanted} replicas run again")
            self._told = ""
        elif reason and reason != self._told:
            self._warn(f"{running} of {wanted} replicas run: {reason}")
            self._told = reason


def last_line(text: str) -> str:
    """Return the last line of a message of Ray's: the exception below its traceback."""
    lines = [line for line in text.splitlines() if line.strip()]
    return _OWN_ERROR.sub("", lines[-1]) if lines else ""
