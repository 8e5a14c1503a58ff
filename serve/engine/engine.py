"""The engine's thread: takes rows from any thread, delivers outcomes as soon as they exist."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np

from serve.engine.admission import Admission, QueueLimits
from serve.engine.audit_rows import AuditText
from serve.engine.core import EngineCore
from serve.engine.cost_model import CostModel
from serve.engine.row import BatchStats, Deliver, Outcome, Priority, Row
from serve.engine.runner import ModelRunner
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.errors import OfframpError, Unavailable

log = logging.getLogger(__name__)


# How often an engine with audits looks whether its neighbours have nothing to answer.
LOOK_EVERY_S = 0.005
# How often a stop looks whether the device hangs, for whose end it does not wait.
_JOIN_S = 0.5


class Queue(NamedTuple):
    """What is admitted and unanswered.

    Attributes:
        rows: how many.
        tokens: theirs.
        seconds: estimated, to answer them.
    """

    rows: int
    tokens: int
    seconds: float


class Engine:
    """Runs rows through the segments until their rules let them leave.

    Every admitted row gets exactly one outcome: an answer or an error.

    Attributes:
        clock: monotonic seconds; rows' deadlines are on this clock.
        neighbours: engines of the same process, beside whose rows no audit runs.
        turn: held while a segment runs; engines that share a lock run one after the other.
    """

    clock = staticmethod(time.monotonic)

    def __init__(
        self,
        runner: ModelRunner,
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
            deliver: gets outcomes on the engine's thread. It must neither block nor raise.
            observe: gets figures of each segment run on the engine's thread. It must neither
                block nor raise.
            batch_limits: how large a batch may grow.
            queue_limits: how much is admitted.
        """
        # A queue wakes the engine's thread sooner than a condition does.
        self._inbox: SimpleQueue[Sequence[Row]] = SimpleQueue()
        self._core = EngineCore(
            runner, shape, batch_limits, self.clock, observe, self._should_yield
        )
        self._deliver = deliver
        self._admission = Admission(queue_limits, self._core.costs, batch_limits)
        self.neighbours: Sequence[Engine] = ()
        self.turn: AbstractContextManager[object] = nullcontext()
        self._unanswered: set[Row] = set()  # admitted, without an outcome yet
        self._lock = threading.Lock()
        self._accepting = False
        self._aborting = False
        self._failure: OfframpError | None = None  # why the thread has died
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the engine's thread runs, and does not wait for a device that hangs."""
        return self._thread.is_alive() and not self._core.hangs

    @property
    def backlog(self) -> Queue:
        """What is admitted and unanswered. Any thread."""
        with self._lock:
            rows, tokens, _ = self._admission.held
            return Queue(rows, tokens, self._admission.seconds)

    @property
    def costs(self) -> CostModel:
        """What segments cost."""
        return self._core.costs

    @property
    def num_retried(self) -> int:
        """How many batches ran again in parts, because memory did not suffice."""
        return self._core.num_retried

    def wait_s(self, client: str, priority: Priority) -> float:
        """Return how long a client's next row waits, see `Admission.wait_s`. Any thread."""
        with self._lock:
            return self._admission.wait_s(client, priority)

    def start(self) -> None:
        """Start the engine's thread."""
        self._accepting = True
        self._thread.start()

    def submit(self, rows: Sequence[Row]) -> None:
        """Admit rows, all or none. Any thread.

        Raises:
            InvalidRequest: the rows would not fit into an empty queue.
            Overloaded: the queue is full, or the client's share of it.
            Unavailable: the engine is stopping or has died.
        """
        with self._lock:
            if not self._accepting:
                raise self._failure or Unavailable("the server is stopping; try again")
            now = self.clock()
            self._admission.admit(rows, now)
            for row in rows:
                row.admitted_s = now
            self._unanswered.update(rows)
            self._inbox.put(rows)

    def audit(self, text: AuditText) -> bool:
        """Run a text through all exits while there is nothing to answer; tell whether it is taken.

        It counts in no queue, and the engine does not wait for it when it stops. Any thread.
        """
        with self._lock:
            taken = self._accepting and self._core.audits.add(text)
            if taken and not self._unanswered:
                # Wakes the thread. With rows unanswered it would only disturb them: the thread
                # looks for audits itself once they have been answered.
                self._inbox.put(())
            return taken

    def drop_audits(self, come_before_s: float) -> None:
        """Give up the audits that came before a time on the clock. Any thread."""
        self._core.audits.drop(come_before_s)

    def check_room(
        self, num_rows: int, num_tokens: int = 0, client: str = "", coming: int = 0
    ) -> None:
        """Refuse rows that the queue has no room for now, before all their text is tokenized.

        Raises:
            InvalidRequest: the rows would not fit into an empty queue.
            Overloaded: the queue is full, or the client's share of it.
        """
        with self._lock:
            self._admission.check_room(num_rows, num_tokens, client, coming)

    def stop(self, drain_s: float) -> bool:
        """Refuse new rows, answer what is admitted, end the thread. Any thread but the engine's.

        Args:
            drain_s: how long to wait. Rows that are unanswered then get `Unavailable`. For a
                device that hangs nothing waits.

        Returns:
            Whether everything was answered in time.
        """
        with self._lock:
            self._accepting = False
            self._inbox.put(())
        ended = self._join(drain_s)
        self._aborting = True
        if not (ended or self._join(math.inf)):
            self._fail_all(_stopped())
        return ended

    def _join(self, seconds: float) -> bool:
        """Wait for the thread's end, but not while the device hangs; tell whether it has ended."""
        ends_s = self.clock() + seconds
        while self.alive and (left_s := ends_s - self.clock()) > 0:
            self._thread.join(min(left_s, _JOIN_S))
        return not self._thread.is_alive()

    def free(self) -> None:
        """Let go of the model, once the thread has ended; one that hangs keeps it.

        The engine is part of rings of references. The garbage collector passes over those that
        were there at the start.
        """
        if not self._thread.is_alive():
            del self._core, self._deliver

    def _run(self) -> None:
        failure: OfframpError = _stopped()
        try:
            # A row with infinite logits has no signal; that is no cause for a warning.
            with np.errstate(invalid="ignore", over="ignore"):
                while self._receive():
                    with self.turn:
                        outcomes = self._core.step()
                    if outcomes:
                        self._send(outcomes)
                    self._core.flush_costs()
        except BaseException:
            log.exception("the engine has died")
            failure = Unavailable("the engine has died and will be replaced; try again")
            self._failure = failure
        finally:
            self._fail_all(failure)
            self._core.audits.drop(math.inf)

    def _receive(self) -> bool:
        """Wait for work and pass new rows to the core; False when it is time to end."""
        # `stop` puts an empty list in, which wakes a thread that waits here. No rows come after
        # `_accepting` has ended, so an inbox that is empty then stays empty; it is looked at last.
        core = self._core
        busy = bool(core)
        while True:
            accepting = self._accepting
            nothing_to_wait_for = busy or not accepting or self._may_audit
            if nothing_to_wait_for and self._inbox.empty():
                return (busy or accepting) and not self._aborting
            # With audits that must wait for a neighbour, it is looked at again now and then.
            with suppress(Empty):
                rows = self._inbox.get(timeout=LOOK_EVERY_S if core.audits else None)
                core.add(rows)
                busy = busy or bool(rows)

    @property
    def _may_audit(self) -> bool:
        audits = self._core.audits
        return bool(audits) and not any([other._unanswered for other in self.neighbours])

    def _should_yield(self) -> bool:
        return self._aborting or not self._inbox.empty()

    def _send(self, outcomes: list[Outcome]) -> None:
        with self._lock:
            if not self._accepting:  # a stop may have given up on what hung
                outcomes = [outcome for outcome in outcomes if outcome.row in self._unanswered]
            self._unanswered.difference_update([outcome.row for outcome in outcomes])
            self._admission.release(outcomes, self.clock())
        self._deliver(outcomes)

    def _fail_all(self, failure: OfframpError) -> None:
        with self._lock:
            self._accepting = False
            outcomes = [Outcome(row, failure) for row in self._unanswered]
            self._unanswered.clear()
            self._admission.release(outcomes, self.clock())
        if outcomes:
            self._deliver(outcomes)


def _stopped() -> Unavailable:
    return Unavailable("the model was stopped before this was answered; try again")
