"""Texts that run through all exits while the engine has nothing else to do.

They are not rows of the scheduler: its choices, what is admitted and the fast path are as without
them. Between two segments of one of them, the engine looks for rows that want an answer. So a row
waits for one segment of one text at most.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.engine.batch import arange, no_padding
from serve.engine.device_errors import device_lost
from serve.engine.runner import Hidden, Ids, ModelRunner

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
        self._lock = threading.Lock()
        self._texts: deque[AuditText] = deque()
        self._num_tokens = 0
        self._running: _Run | None = None
        self._advancing = threading.Lock()

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
            run = self._running = self._running or self._begin()
            if run is None:
                return
            try:
                run.advance(self._runner)
            except Exception as error:
                self._end(run, None)
                if device_lost(error):
                    raise
                log.warning("an audit failed", exc_info=True)
                return
            if len(run.found) == len(run.text.rows):
                self._end(run, run.found)

    def drop(self, come_before_s: float) -> None:
        """Give up the texts that came before a time, but for one of which a segment runs now.

        Any thread; on that of `advance` none runs.
        """
        while text := self._pop(come_before_s):
            text.done(None)
        if self._advancing.acquire(blocking=False):
            try:
                if self._running and self._running.text.come_s < come_before_s:
                    self._end(self._running, None)
            finally:
                self._advancing.release()

    def _begin(self) -> "_Run | None":
        text = self._pop(math.inf)
        return _Run(text) if text else None

    def _end(self, run: "_Run", found: Sequence[EveryExit] | None) -> None:
        self._running = None
        run.text.done(found)

    def _pop(self, come_before_s: float) -> AuditText | None:
        with self._lock:
            if not self._texts or self._texts[0].come_s >= come_before_s:
                return None
            text = self._texts.popleft()
            self._num_tokens -= text.num_tokens
            return text


class _Run:
    """A text on its way: its rows go through the exits one after the other."""

    def __init__(self, text: AuditText) -> None:
        self.text = text
        self.found: list[EveryExit] = []
        self._hidden: Hidden = None
        self._logits: list[NDArray[np.float32]] = []
        self._uncertainty: list[NDArray[np.float32]] = []

    def advance(self, runner: ModelRunner) -> None:
        """Run the next segment."""
        ids, types = self.text.rows[len(self.found)]
        mask, depth = no_padding(len(ids)), len(self._logits)
        if depth:
            output = runner.advance(depth, self._hidden, arange(1), mask)
        else:
            output = runner.start(ids[None], mask, types[None])
        self._hidden = output.hidden
        self._logits.append(output.logits[0])
        if output.uncertainty is not None:
            self._uncertainty.append(output.uncertainty[0])
        if depth + 1 == len(runner):
            self._end_row()

    def _end_row(self) -> None:
        uncertainty = np.array(self._uncertainty, np.float32) if self._uncertainty else None
        self.found.append(EveryExit(np.stack(self._logits), uncertainty))
        self._hidden, self._logits, self._uncertainty = None, [], []
