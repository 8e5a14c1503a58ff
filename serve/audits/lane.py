"""One model's audits: drawn texts run on when their answers are out, and what comes of it."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from serve.audits.counts import Counts, Key
from serve.audits.record import AuditLog, AuditRecord
from serve.audits.tally import Tally
from serve.engine.audit_rows import AuditText, EveryExit
from serve.engine.engine import Engine
from serve.engine.runner import Ids
from serve.policy.audit import Audit

log = logging.getLogger(__name__)

# How often counts are stored, and texts given up that have waited too long.
TURN_S: Final = 2.0
MAX_WAIT_S: Final = 30.0
_STOP_S: Final = 5.0


class Served(Protocol):
    """A text that has been answered, with what is needed to compare the answer."""

    @property
    def keys(self) -> Sequence[Key]:
        """All that it is counted as."""
        ...

    @property
    def rows(self) -> Sequence[tuple[Ids, Ids]]:
        """Token ids and types of the text, or of each of its windows."""
        ...

    def compare(self, rows: Sequence[EveryExit]) -> tuple[AuditRecord, Tally]:
        """Return what comes of the audit; raises where that cannot be said."""
        ...


class AuditLane:
    """Audits one model's answers, on a thread of its own beside the engine's.

    Attributes:
        log: the newest audits.
        watches: called every `TURN_S`, after counts have been stored, on the lane's thread.
    """

    def __init__(self, engine: Engine, put_counts: Callable[[bytes], None]) -> None:
        """Prepare a lane; `start` makes it work.

        Args:
            engine: runs the texts.
            put_counts: stores this replica's counts. It may block, and fail.
        """
        self.log = AuditLog()
        self._engine, self._put_counts = engine, put_counts
        self.watches: list[Callable[[], None]] = []
        self._counts, self._stored = Counts(), Counts()
        self._lock = threading.Lock()
        self._ran: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="audits", daemon=True)

    def start(self) -> None:
        """Start the lane's thread."""
        self._thread.start()

    def stop(self) -> None:
        """Store what has been counted, and end the thread. The engine has been stopped."""
        self._ran.put(None)
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def watch_no_more(self) -> None:
        """Leave the policy alone from now on: that of another bundle takes its place."""
        self.watches.clear()

    def counts(self) -> Counts:
        """Return what this process has counted. Any thread."""
        with self._lock:
            return self._counts + Counts()

    def offer(self, served: Served, wanted: Audit) -> None:
        """Take a drawn text, or count it as skipped. Nothing of the text decides about that.

        To be called once its answer is on its way. Any thread.
        """
        in_time = 1000 * self._engine.backlog.seconds <= wanted.max_queue_ms
        text = AuditText(served.rows, partial(self._take, served), self._engine.clock())
        if not (in_time and self._engine.audit(text)):
            self._count(served.keys, Tally(skipped=1))

    def _take(self, served: Served, rows: Sequence[EveryExit] | None) -> None:
        """Take what the engine's thread has found, and leave the rest to the lane's."""
        self._ran.put(partial(self._finish, served, rows))

    def _finish(self, served: Served, rows: Sequence[EveryExit] | None) -> None:
        tally = Tally(skipped=1)
        if rows is not None:
            try:
                record, tally = served.compare(rows)
                self.log.add(record)
            except Exception:
                log.warning("an audited answer could not be compared", exc_info=True)
        self._count(served.keys, tally)

    def count(self, key: Key, tally: Tally) -> None:
        """Count what no audit has found. Any thread."""
        self._count([key], tally)

    def _count(self, keys: Sequence[Key], tally: Tally) -> None:
        with self._lock:
            for key in keys:
                self._counts.add(key, tally)

    def _run(self) -> None:
        turn_s, going = time.monotonic() + TURN_S, True
        while going:
            try:
                finish = self._ran.get(timeout=max(0.0, turn_s - time.monotonic()))
            except Empty:
                finish, turn_s = self._turn, time.monotonic() + TURN_S
            going = finish is not None
            if finish:
                finish()
        self._store()

    def _turn(self) -> None:
        """Do what is due every `TURN_S`."""
        self._engine.drop_audits(self._engine.clock() - MAX_WAIT_S)
        self._store()
        for watch in tuple(self.watches):
            try:
                watch()
            except Exception:
                log.warning("a look at the audits has failed", exc_info=True)

    def _store(self) -> None:
        """Store the counts, if they have changed; what fails is tried again."""
        counts = self.counts()
        if dict(counts) == dict(self._stored):
            return
        try:
            self._put_counts(counts.to_json())
        except Exception:
            log.warning("counts of audits could not be stored", exc_info=True)
        else:
            self._stored = counts
