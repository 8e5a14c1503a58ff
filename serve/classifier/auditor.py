"""One model's audits: drawn texts run in full once their answers are out, and what they show."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from serve.audits.counts import AuditCounts, AuditKey, Tally
from serve.audits.draw import Draw
from serve.audits.record import AuditLog
from serve.classifier.audited import AuditedText, Comparing, audited_text
from serve.classifier.classification import Classification
from serve.engine.audit_rows import AuditText, EveryExit
from serve.engine.engine import Engine
from serve.policy.document import Audit

log = logging.getLogger(__name__)

# How often counts are stored, and texts given up that have waited too long.
TURN_S: Final = 2.0
MAX_WAIT_S: Final = 30.0
_STOP_S: Final = 5.0


class Auditor:
    """Draws answered texts on the event loop, and compares them on a thread beside the engine's.

    Attributes:
        log: the newest audits.
        watches: called every `TURN_S`, after counts have been stored, on the auditor's thread.
    """

    def __init__(
        self, engine: Engine, comparing: Comparing | None, put_counts: Callable[[bytes], None]
    ) -> None:
        """Prepare audits; `start` makes them run.

        Args:
            engine: runs the texts.
            comparing: how answers are compared; None where they cannot be.
            put_counts: stores this replica's counts. It may block, and fail.
        """
        self.log = AuditLog()
        self.watches: list[Callable[[], object]] = []
        self._engine, self._comparing, self._put_counts = engine, comparing, put_counts
        self._draw = Draw()
        self._counts, self._stored = AuditCounts(), AuditCounts()
        self._lock = threading.Lock()
        self._ran: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="audits", daemon=True)

    @property
    def compares(self) -> bool:
        """Whether answers can be compared with full depth's."""
        return self._comparing is not None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Store what has been counted, and end the thread. The engine has been stopped."""
        self._ran.put(None)
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def watch_no_more(self) -> None:
        """Leave the policy alone from now on: that of another bundle takes its place."""
        self.watches.clear()

    def draw(self, num_texts: int, wanted: Audit) -> Sequence[int]:
        """Return the places of the next request's texts that are drawn; asked for every request."""
        return self._draw.places(num_texts, wanted.share) if self._comparing else ()

    def audit_soon(self, done: Classification, places: Sequence[int]) -> None:
        """Audit texts once the event loop is free again, which is when the answer has been sent."""
        asyncio.get_running_loop().call_soon(self._audit, done, places)

    def offer(self, text: AuditedText, max_queue_ms: float) -> None:
        """Run a drawn text, or count it as skipped. Nothing of the text decides about that.

        Args:
            text: a text whose answer is on its way.
            max_queue_ms: while the queue takes longer, texts are skipped.
        """
        in_time = 1000 * self._engine.backlog.seconds <= max_queue_ms
        run = AuditText(text.rows, partial(self._take, text), self._engine.clock())
        if not (in_time and self._engine.audit(run)):
            self._count(text.keys, Tally(skipped=1))

    def count(self, key: AuditKey, tally: Tally) -> None:
        """Count what no audit has found. Any thread."""
        self._count([key], tally)

    def counts(self) -> AuditCounts:
        """Return what this process has counted. Any thread."""
        with self._lock:
            return AuditCounts(self._counts)

    def _audit(self, done: Classification, places: Sequence[int]) -> None:
        assert self._comparing is not None
        for place in places:
            text = audited_text(done, place, self._comparing)
            if text.keys:
                self.offer(text, done.live.audit.max_queue_ms)

    def _take(self, text: AuditedText, rows: Sequence[EveryExit] | None) -> None:
        """Take what the engine's thread has found, and leave the rest to the auditor's."""
        self._ran.put(partial(self._finish, text, rows))

    def _finish(self, text: AuditedText, rows: Sequence[EveryExit] | None) -> None:
        tally = Tally(skipped=1)
        if rows is not None:
            try:
                tally = text.compare(rows)
                self.log.add(text.record(rows))
            except Exception:
                log.warning("an audited answer could not be compared", exc_info=True)
        self._count(text.keys, tally)

    def _count(self, keys: Sequence[AuditKey], tally: Tally) -> None:
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
        if counts == self._stored:
            return
        try:
            self._put_counts(counts.to_json())
        except Exception:
            log.warning("counts of audits could not be stored", exc_info=True)
        else:
            self._stored = counts
