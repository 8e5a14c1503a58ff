"""Audits between the engine and the counts, with an engine that runs what the test lets it."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from serve.audits.counts import AuditCounts, AuditKey, Seen, Tally
from serve.audits.record import AuditRecord
from serve.classifier import auditor as auditor_module
from serve.classifier.auditor import MAX_WAIT_S, Auditor
from serve.engine.audit_rows import AuditText, EveryExit
from tests.support.patience import until

KEY = AuditKey("balanced")
ROWS = [EveryExit(np.zeros((2, 2), np.float32))]
RECORD = AuditRecord("balanced", ())


class Engine:
    """Takes audits until it is full, and is told to give up old ones."""

    def __init__(self) -> None:
        self.backlog_s, self.full, self.now_s = 0.0, False, 100.0
        self.texts: list[AuditText] = []
        self.dropped_before: list[float] = []

    @property
    def backlog(self) -> Any:
        return SimpleNamespace(seconds=self.backlog_s)

    def clock(self) -> float:
        return self.now_s

    def audit(self, text: AuditText) -> bool:
        if not self.full:
            self.texts.append(text)
        return not self.full

    def drop_audits(self, come_before_s: float) -> None:
        self.dropped_before.append(come_before_s)


class Served:
    """A text whose comparison gives what the test says."""

    keys = (KEY,)

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    @property
    def rows(self) -> Sequence[Any]:
        return [(np.zeros(3, np.int64), np.zeros(3, np.int64))]

    def compare(self, rows: Sequence[EveryExit]) -> Tally:
        if self._error:
            raise self._error
        return Tally.of(Seen(1, 1), 1, early=True)

    def record(self, rows: Sequence[EveryExit]) -> AuditRecord:
        return RECORD


class Bench:
    def __init__(self) -> None:
        self.engine, self.stored, self.fails = Engine(), list[bytes](), False
        self.turns, self.watch_fails = 0, False
        self.auditor = Auditor(self.engine, None, self._put)  # type: ignore[arg-type]
        self.auditor.watches.append(self._watch)

    def _put(self, counts: bytes) -> None:
        if self.fails:
            raise OSError("planted")
        self.stored.append(counts)

    def _watch(self) -> None:
        self.turns += 1
        if self.watch_fails:
            raise RuntimeError("planted")

    def offer(self, *served: Served, max_queue_ms: float = 100.0) -> None:
        for each in served or (Served(),):
            self.auditor.offer(each, max_queue_ms)  # type: ignore[arg-type]

    def tally(self) -> Tally:
        return self.auditor.counts().get(KEY, Tally())


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(auditor_module, "TURN_S", 0.005)
    found = Bench()
    found.auditor.start()
    yield found
    found.auditor.stop()


def test_texts_are_skipped_and_counted_so_while_the_queue_is_longer_than_the_bound(
    bench: Bench,
) -> None:
    bench.engine.backlog_s = 0.05
    bench.offer(max_queue_ms=49.9)
    assert (len(bench.engine.texts), bench.tally().skipped) == (0, 1)
    bench.offer(max_queue_ms=50.1)
    assert (len(bench.engine.texts), bench.tally().skipped) == (1, 1)


def test_what_does_not_run_or_cannot_be_compared_counts_as_skipped(bench: Bench) -> None:
    bench.engine.full = True
    bench.offer()
    bench.engine.full = False
    bench.offer(Served(), Served(RuntimeError("planted")))
    given_up, broken = bench.engine.texts
    given_up.done(None)
    broken.done(ROWS)
    until(lambda: bench.tally().skipped == 3)
    assert bench.tally().audited == len(bench.auditor.log.records()) == 0


def test_texts_that_wait_too_long_are_given_up(bench: Bench) -> None:
    until(lambda: bool(bench.engine.dropped_before))
    assert bench.engine.dropped_before[0] == bench.engine.now_s - MAX_WAIT_S


def test_counts_that_cannot_be_stored_are_stored_later_and_unchanged_ones_are_not(
    bench: Bench,
) -> None:
    bench.fails = True
    bench.engine.full = True
    bench.offer()
    until(lambda: bench.turns >= 3)
    assert not bench.stored
    bench.fails = False
    until(lambda: bool(bench.stored))
    seen = bench.turns
    until(lambda: bench.turns >= seen + 3)
    assert len(bench.stored) == 1


def test_a_look_that_fails_is_followed_by_the_next(bench: Bench) -> None:
    bench.watch_fails = True
    until(lambda: bench.turns >= 2)
    bench.offer()
    assert bench.engine.texts


def test_what_has_been_counted_is_stored_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor_module, "TURN_S", 600.0)
    bench = Bench()
    bench.auditor.start()
    bench.offer()
    bench.engine.texts[0].done(ROWS)
    bench.auditor.stop()
    assert [AuditCounts.from_json(each)[KEY].audited for each in bench.stored] == [1]
