"""Texts that run through all exits while the engine has nothing else to do.

They are not rows of the scheduler: its choices, what is admitted and the fast path are as without
them. Between two segments of one of them, the engine looks for rows that want an answer. So a row
waits for one segment of one text at most.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.engine.batch import no_padding
from serve.engine.device_errors import device_lost
from serve.engine.runner import Ids, ModelRunner, StepOutput
from serve.engine.warm_up import steps

log = logging.getLogger(__name__)

MAX_TEXTS = 64
# No text is refused for its own length: the next one waits for room.
MAX_TOKENS = 32_768


class EveryExit(NamedTuple):
    """What every exit said of a text, or of a window of it.

    Attributes:
        logits: (exits, labels) float32; for token classification (exits, tokens, labels).
        uncertainty: (exits,) the errors that the heads predict for themselves; None without.
    """

    logits: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None = None


# Called once, on any thread; None where the text has not run to its end.
Done: TypeAlias = Callable[[Sequence[EveryExit] | None], None]


@dataclass(frozen=True, slots=True, eq=False)
class AuditText:
    """A text to be run through all exits.

    Attributes:
        rows: token ids and types of the text, or of each of its windows, (tokens,) each.
        done: gets what the exits say. It must neither block nor raise.
        come_s: when it came, on the engine's clock.
    """

    rows: Sequence[tuple[Ids, Ids]]
    done: Done
    come_s: float

    @property
    def num_tokens(self) -> int:
        """Of all rows."""
        return sum(len(ids) for ids, _ in self.rows)


class AuditRows:
    """Audited texts, bounded in number and tokens; one caller of `advance`."""

    def __init__(self, runner: ModelRunner) -> None:
        """Start empty."""
        self._runner = runner
        self._lock = threading.Lock()  # guards the texts that wait
        self._texts: deque[AuditText] = deque()
        self._num_tokens = 0
        self._advancing = threading.Lock()  # guards the text that runs
        self._running: AuditText | None = None
        self._walk: Iterator[Sequence[EveryExit] | None] = iter(())

    def __bool__(self) -> bool:
        return bool(self._running or self._texts)

    def add(self, text: AuditText) -> bool:
        """Take in a text; tell whether there was room. Any thread."""
        with self._lock:
            if len(self._texts) >= MAX_TEXTS or self._num_tokens >= MAX_TOKENS:
                return False
            self._texts.append(text)
            self._num_tokens += text.num_tokens
            return True

    def advance(self) -> None:
        """Run one segment of one row.

        A failure ends the text that it is of. The error of a device that is lost is raised.
        """
        with self._advancing:
            if self._running is None:
                self._running = self._pop(math.inf)
                if self._running is None:
                    return
                self._walk = _walk(self._runner, self._running)
            try:
                found = next(self._walk)
            except Exception as error:
                self._end(None)
                if device_lost(error):
                    raise
                log.warning("an audit failed", exc_info=True)
                return
            if found is not None:
                self._end(found)

    def drop(self, come_before_s: float) -> None:
        """Give up the texts that came before a time, but for one of which a segment runs now.

        May be called on any thread. On the thread of `advance`, no segment runs meanwhile.
        """
        while text := self._pop(come_before_s):
            text.done(None)
        if self._advancing.acquire(blocking=False):
            try:
                if self._running and self._running.come_s < come_before_s:
                    self._end(None)
            finally:
                self._advancing.release()

    def _end(self, found: Sequence[EveryExit] | None) -> None:
        text, self._running, self._walk = self._running, None, iter(())
        assert text
        text.done(found)

    def _pop(self, come_before_s: float) -> AuditText | None:
        with self._lock:
            if not self._texts or self._texts[0].come_s >= come_before_s:
                return None
            text = self._texts.popleft()
            self._num_tokens -= text.num_tokens
            return text


def _walk(runner: ModelRunner, text: AuditText) -> Iterator[Sequence[EveryExit] | None]:
    """Run a segment of a text for each value; the last value is what all exits say."""
    found: list[EveryExit] = []
    for ids, types in text.rows:
        said: list[StepOutput] = []
        for output in steps(runner, ids[None], no_padding(len(ids)), types[None]):
            said.append(output._replace(hidden=None))
            if len(said) < len(runner):
                yield None
        found.append(_every_exit(said))
        yield found if len(found) == len(text.rows) else None


def _every_exit(said: Sequence[StepOutput]) -> EveryExit:
    logits = np.stack([output.logits[0] for output in said])
    errors = [output.uncertainty[0] for output in said if output.uncertainty is not None]
    return EveryExit(logits, np.array(errors, np.float32) if errors else None)
