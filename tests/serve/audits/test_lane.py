"""The lane between the engine and the counts, with an engine that runs what the test lets it."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from serve.audits import lane as lane_module
from serve.audits.counts import Counts, Key
from serve.audits.lane import MAX_WAIT_S, AuditLane
from serve.audits.record import AuditRecord
from serve.audits.tally import Compared, Tally
from serve.engine.audit_rows import AuditText, EveryExit
from serve.policy.audit import Audit
from tests.support.patience import until

KEY = Key("balanced")
ROWS = [EveryExit(np.zeros((2, 2), np.float32))]
RECORD = AuditRecord(0.0, 1, "balanced", "", None, None, 0, True, False, 3, Compared(True), ())


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
        self._error, self.looked_at = error, False

    @property
    def rows(self) -> Sequence[Any]:
        return [(np.zeros(3, np.int64), np.zeros(3, np.int64))]

    def compare(self, rows: Sequence[EveryExit]) -> tuple[AuditRecord, Tally]:
        if self._error:
            raise self._error
        return RECORD, Tally.of(Compared(True), 1, early=True)


class Bench:
    def __init__(self) -> None:
        self.engine, self.stored, self.fails = Engine(), list[bytes](), False
        self.turns, self.watch_fails = 0, False
        self.lane = AuditLane(self.engine, self._put)  # type: ignore[arg-type]
        self.lane.watches.append(self._watch)

    def _put(self, counts: bytes) -> None:
        if self.fails:
            raise OSError("planted")
        self.stored.append(counts)

    def _watch(self) -> None:
        self.turns += 1
        if self.watch_fails:
            raise RuntimeError("planted")

    def offer(self, *served: Served, **wanted: float) -> None:
        for each in served or (Served(),):
            self.lane.offer(each, Audit(**wanted))

    def tally(self) -> Tally:
        return dict(self.lane.counts()).get(KEY, Tally())


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(lane_module, "TURN_S", 0.005)
    found = Bench()
    found.lane.start()
    yield found
    found.lane.stop()


def test_a_text_that_has_run_is_compared_kept_and_counted(bench: Bench) -> None:
    bench.offer()
    bench.engine.texts[0].done(ROWS)
    until(lambda: bench.tally().audited == 1)
    assert bench.lane.log.records() == [RECORD]
    assert bench.tally().differ == 1
    until(lambda: bool(bench.stored))
    assert Counts.from_json(bench.stored[-1])[KEY] == bench.tally()


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
    assert bench.tally().audited == len(bench.lane.log) == 0


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
    monkeypatch.setattr(lane_module, "TURN_S", 600.0)
    bench = Bench()
    bench.lane.start()
    bench.offer()
    bench.engine.texts[0].done(ROWS)
    bench.lane.stop()
    assert [Counts.from_json(each)[KEY].audited for each in bench.stored] == [1]


def test_a_lane_that_was_never_started_can_be_stopped() -> None:
    Bench().lane.stop()
