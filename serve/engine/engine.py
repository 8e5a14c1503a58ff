"""The engine's thread: rows in from any thread, outcomes out the moment they exist."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from serve.engine.admission import Admission, QueueLimits
from serve.engine.core import EngineCore
from serve.engine.executor import ModelShape
from serve.engine.row import BatchStats, Deliver, Outcome, Row
from serve.engine.runner import AnyRunner
from serve.engine.scheduler import BatchLimits
from serve.errors import OfframpError, Unavailable

log = logging.getLogger(__name__)


class Backlog(NamedTuple):
    """What is admitted and unanswered: rows, their tokens, estimated seconds to answer them."""

    rows: int
    tokens: int
    seconds: float


class Engine:
    """Runs rows through the segments until their rules let them leave.

    Every admitted row gets exactly one outcome: an answer or an error.

    Attributes:
        clock: monotonic seconds; rows' deadlines are on this clock.
    """

    clock = staticmethod(time.monotonic)

    def __init__(
        self,
        runner: AnyRunner,
        shape: ModelShape,
        deliver: Deliver,
        observe: Callable[[BatchStats], None] = lambda stats: None,
        batch_limits: BatchLimits = BatchLimits(),
        queue_limits: QueueLimits = QueueLimits(),
    ) -> None:
        """Prepare an engine; `start` makes it run.

        Args:
            runner: the segments.
            shape: the model's exits.
            deliver: gets outcomes, on the engine's thread; must neither block nor raise.
            observe: gets figures of each segment run, likewise.
            batch_limits: how large a batch may grow.
            queue_limits: how much is admitted.
        """
        # Wakes the engine's thread sooner than a condition does.
        self._inbox: SimpleQueue[Sequence[Row]] = SimpleQueue()
        self._core = EngineCore(runner, shape, batch_limits, self.clock, observe, self._should_yield)
        self._deliver = deliver
        self._admission = Admission(
            queue_limits, self._core.costs, batch_limits, self._core.exit_depths
        )
        self._owed: set[Row] = set()  # admitted, without an outcome yet
        self._lock = threading.Lock()
        self._accepting = False
        self._aborting = False
        self._failure: OfframpError | None = None  # why it has died
        self._thread = threading.Thread(target=self._live, name="engine", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the engine's thread runs."""
        return self._thread.is_alive()

    @property
    def backlog(self) -> Backlog:
        """What is admitted and unanswered. Any thread."""
        with self._lock:
            waiting = self._admission
            return Backlog(waiting.rows, waiting.tokens, waiting.backlog_s)

    def start(self) -> None:
        """Start the engine's thread."""
        self._accepting = True
        self._thread.start()

    def submit(self, rows: Sequence[Row]) -> None:
        """Admit rows, all or none. Any thread.

        Raises:
            InvalidRequest: the rows would not fit into an empty queue.
            Overloaded: the queue is full.
            Unavailable: the engine is stopping or has died.
        """
        with self._lock:
            if not self._accepting:
                raise self._failure or Unavailable("the server is stopping; try again")
            self._admission.admit(rows)
            now = self.clock()
            for row in rows:
                row.admitted_s = now
            self._owed.update(rows)
            self._inbox.put(rows)

    def check_room(self, num_rows: int) -> None:
        """Refuse early what the queue has no room for now, before its text is tokenized.

        Raises:
            InvalidRequest: the rows would not fit into an empty queue.
            Overloaded: the queue is full.
        """
        with self._lock:
            self._admission.check_room(num_rows)

    def stop(self, drain_s: float) -> bool:
        """Refuse new rows, answer what is admitted, end the thread. Any thread but the engine's.

        Args:
            drain_s: how long to wait; what is unanswered then gets `Unavailable`.

        Returns:
            Whether everything was answered in time.
        """
        with self._lock:
            self._accepting = False
            self._inbox.put(())
        if not self.alive:
            return True
        self._thread.join(drain_s)
        drained = not self.alive
        self._aborting = True
        self._thread.join()
        return drained

    def _live(self) -> None:
        failure: OfframpError = Unavailable("the server has stopped; try again")
        try:
            # A row with infinite logits has no signal; that is no cause for a warning.
            with np.errstate(invalid="ignore", over="ignore"):
                while self._take_in():
                    outcomes = self._core.turn()
                    if outcomes:
                        self._send(outcomes)
                    self._core.write_books()
        except BaseException:
            log.exception("the engine has died")
            failure = Unavailable("the engine has died and will be replaced; try again")
            self._failure = failure
        finally:
            self._abandon(failure)

    def _take_in(self) -> bool:
        """Wait for work and pass new rows to the core; False when it is time to end."""
        # `stop` puts no rows in, so that there is always something to wait for. After it none
        # come, so an inbox that is found empty then stays so: it must be looked at last.
        busy = bool(self._core)
        while (self._accepting and not busy) or not self._inbox.empty():
            rows = self._inbox.get()
            self._core.add(rows)
            busy = busy or bool(rows)
        return busy and not self._aborting

    def _should_yield(self) -> bool:
        return self._aborting or not self._inbox.empty()

    def _send(self, outcomes: list[Outcome]) -> None:
        rows = [outcome.row for outcome in outcomes]
        with self._lock:
            self._owed.difference_update(rows)
            self._admission.release(outcomes)
        self._deliver(outcomes)

    def _abandon(self, failure: OfframpError) -> None:
        with self._lock:
            self._accepting = False
            outcomes = [Outcome(row, failure) for row in self._owed]
            self._owed.clear()
            self._admission.release(outcomes)
        if outcomes:
            self._deliver(outcomes)
