"""Audits in the engine: they run while nothing wants an answer, and tell what every exit says."""

import random
import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest

from serve.engine.audit_rows import MAX_TEXTS, MAX_TOKENS, AuditRows, AuditText, EveryExit
from serve.engine.engine import Engine
from serve.engine.row import Answer
from serve.engine.shape import ModelShape
from serve.errors import Unavailable
from serve.rules import EntropyRule
from tests.serve.engine.test_engine import Collected, Gate
from tests.serve.support.core_bench import CoreBench
from tests.serve.support.fake_runner import FakeRunner
from tests.serve.support.fake_runner import fake_row as row_for
from tests.serve.support.lost_device import ILLEGAL_ADDRESS
from tests.support.patience import until
from tests.support.traits import two_labels

EXITS = (1, 2, 3)
AUDIT = 1000  # keys from here on are of audits
PATIENCE_S = 30.0
fake_row = partial(row_for, exits=EXITS)


def heads(key: int, index: int) -> tuple[float, float]:
    return float(key % 7 if index else 0), float(index)


class Found:
    """Takes what audits end with, in order."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, Sequence[EveryExit] | None]] = []

    def text(self, key: int, *lengths: int, come_s: float = 0.0) -> AuditText:
        ids = [np.full(length, key, np.int64) for length in lengths or (3,)]
        return AuditText([(own, np.zeros_like(own)) for own in ids], partial(self.end, key), come_s)

    def end(self, key: int, found: Sequence[EveryExit] | None) -> None:
        self.ended.append((key, found))

    def wait_for(self, count: int) -> dict[int, Sequence[EveryExit] | None]:
        until(lambda: len(self.ended) >= count)
        return dict(self.ended)


def run_all(bench: CoreBench) -> None:
    while bench.core or bench.core.audits:
        bench.step()


def test_an_audit_ends_with_what_every_exit_says_of_every_window() -> None:
    bench, found = CoreBench(heads, len(EXITS)), Found()
    bench.core.audits.add(found.text(AUDIT, 5, 2))
    run_all(bench)
    ((_, rows),) = found.ended
    expected = [heads(AUDIT, index) for index in range(len(EXITS))]
    assert rows is not None
    assert [row.logits.tolist() for row in rows] == [list(map(list, expected))] * 2
    assert [(run.num_tokens, run.index, run.exit_index) for run in bench.runner.runs] == [
        (tokens, index, index) for tokens in (5, 2) for index in range(3)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_no_segment_of_an_audit_runs_while_a_row_wants_an_answer(seed: int) -> None:
    draw, found = random.Random(seed), Found()
    bench, answered, ran = CoreBench(heads, len(EXITS), tick_s=1e-4), 0, 0
    for key in range(1, 60):
        if draw.random() < 0.5:
            bench.core.audits.add(found.text(AUDIT + key, *[2] * draw.randint(1, 3)))
        if draw.random() < 0.4:
            rule = EntropyRule(threshold=draw.choice([0.01, 0.6]))
            bench.add(*(fake_row(key, rule=rule) for _ in range(draw.randint(1, 4))))
        wanted, before = bool(bench.core), len(bench.runner.runs)
        answered += len(bench.step())
        audited = [run for run in bench.runner.runs[before:] if run.keys[0] >= AUDIT]
        ran += len(audited)
        assert len(audited) <= (0 if wanted else 1), "a row waits for one segment at most"
        assert all(run.keys == run.keys[:1] for run in audited)
    run_all(bench)
    assert ran
    assert answered
    assert all(rows is not None for _, rows in found.ended)


def test_answers_run_as_they_do_without_audits() -> None:
    def runs(audits: int) -> list[tuple[int, int, list[int]]]:
        draw, bench, found = random.Random(1), CoreBench(heads, len(EXITS), tick_s=1e-4), Found()
        for key in range(1, 40):
            for nth in range(audits):
                bench.core.audits.add(found.text(AUDIT + 10 * key + nth))
            if draw.random() < 0.5:
                rows = [fake_row(key, 2 + key % 3, EntropyRule(threshold=0.6)) for _ in range(2)]
                bench.add(*rows[: draw.randint(1, 2)])
            bench.step()
            while bench.core:
                bench.step()
        own = [run for run in bench.runner.runs if run.keys[0] < AUDIT]
        return [(run.index, run.exit_index, run.keys) for run in own]

    assert runs(audits=2) == runs(audits=0)


def test_a_segment_that_fails_ends_its_own_audit_alone() -> None:
    def failing(key: int, index: int) -> tuple[float, float]:
        if key == AUDIT and index == 1:
            raise RuntimeError("planted")
        return heads(key, index)

    bench, found = CoreBench(failing, len(EXITS)), Found()
    for key in (AUDIT, AUDIT + 1):
        bench.core.audits.add(found.text(key))
    bench.add(fake_row(1))
    run_all(bench)
    assert [(key, rows is None) for key, rows in found.ended] == [(AUDIT, True), (AUDIT + 1, False)]


def test_waiting_audits_are_bounded_and_none_is_refused_for_its_own_length() -> None:
    bench, found = CoreBench(heads, len(EXITS)), Found()
    assert [bench.core.audits.add(found.text(AUDIT)) for _ in range(MAX_TEXTS + 1)].count(
        True
    ) == MAX_TEXTS
    rows = AuditRows(bench.runner)
    assert rows.add(found.text(AUDIT, MAX_TOKENS - 1))
    assert rows.add(found.text(AUDIT, *[100] * 400))
    assert not rows.add(found.text(AUDIT, 1))
    rows.drop(come_before_s=1.0)
    assert not rows
    assert rows.add(found.text(AUDIT, 1))


def test_audits_that_have_waited_too_long_are_given_up() -> None:
    bench, found = CoreBench(heads, len(EXITS)), Found()
    for key, come_s in ((AUDIT, 1.0), (AUDIT + 1, 2.0), (AUDIT + 2, 3.0)):
        bench.core.audits.add(found.text(key, come_s=come_s))
    bench.step()
    bench.core.audits.drop(come_before_s=0.5)
    assert not found.ended
    bench.core.audits.drop(come_before_s=2.5)
    assert sorted(found.ended) == [(AUDIT, None), (AUDIT + 1, None)], "also the one that had begun"
    run_all(bench)
    assert found.ended[2][1] is not None


def engine_of(heads: Callable[[int, int], Sequence[float]]) -> tuple[Engine, Collected, Found]:
    collected = Collected()
    shape = ModelShape(two_labels(EXITS), (1.0,) * len(EXITS))
    return Engine(FakeRunner(len(EXITS), heads), shape, collected), collected, Found()


def test_an_idle_engine_wakes_for_an_audit_and_counts_it_nowhere() -> None:
    gate = Gate()
    engine, _, found = engine_of(gate)
    assert not engine.audit(found.text(AUDIT)), "an engine that does not run takes none"
    engine.start()
    assert engine.audit(found.text(AUDIT))
    assert gate.entered.wait(PATIENCE_S)
    assert engine.backlog == (0, 0, 0.0)
    gate.open.set()
    assert found.wait_for(1)[AUDIT] is not None
    assert engine.stop(PATIENCE_S)


def test_an_audit_that_comes_does_not_interrupt_the_row_that_runs_and_runs_behind_it() -> None:
    gate = Gate()
    engine, collected, found = engine_of(gate)
    engine.start()
    engine.submit([fake_row(1)])
    assert gate.entered.wait(PATIENCE_S)
    assert engine.audit(found.text(AUDIT))
    assert not engine._should_yield(), "a row that is alone would leave the fast path for it"
    gate.open.set()
    assert isinstance(collected.wait_for(1)[1], Answer)
    assert found.wait_for(1)[AUDIT] is not None
    assert engine.stop(PATIENCE_S)


def test_audits_wait_for_the_rows_of_other_models_in_the_process() -> None:
    gate = Gate()
    busy, collected, _ = engine_of(gate)
    idle, _, found = engine_of(heads)
    idle.neighbours = [busy]
    for engine in (busy, idle):
        engine.start()
    busy.submit([fake_row(1)])
    assert gate.entered.wait(PATIENCE_S)
    assert idle.audit(found.text(AUDIT))
    # A row is answered meanwhile: the thread waits for both.
    collected_here = Collected()
    idle._deliver = collected_here
    idle.submit([fake_row(2)])
    assert isinstance(collected_here.wait_for(1)[2], Answer)
    assert not found.ended
    gate.open.set()
    assert isinstance(collected.wait_for(1)[1], Answer)
    assert found.wait_for(1)[AUDIT] is not None
    assert all(engine.stop(PATIENCE_S) for engine in (busy, idle))


def test_a_stop_waits_for_no_audit() -> None:
    gate = Gate()
    engine, _, found = engine_of(gate)
    engine.start()
    for key in range(AUDIT, AUDIT + 3):
        assert engine.audit(found.text(key))
    assert gate.entered.wait(PATIENCE_S)
    stopping = threading.Thread(target=engine.stop, args=(PATIENCE_S,))
    stopping.start()
    while engine.audit(found.text(9999)):
        found.ended.clear()
    gate.open.set()
    stopping.join()
    ended = found.wait_for(3)
    assert [ended[key] for key in range(AUDIT, AUDIT + 3)] == [None] * 3
    assert not engine.alive


@pytest.mark.parametrize("error", [SystemExit(), RuntimeError(ILLEGAL_ADDRESS)], ids=str)
def test_when_the_engine_dies_its_audits_end_too(error: BaseException) -> None:
    def dying(key: int, index: int) -> tuple[float, float]:
        raise error

    engine, _, found = engine_of(dying)
    engine.start()
    engine.audit(found.text(AUDIT))
    engine._thread.join(PATIENCE_S)
    assert not engine.alive
    assert found.ended == [(AUDIT, None)]
    assert not engine.audit(found.text(AUDIT + 1))
    with pytest.raises(Unavailable):
        engine.submit([fake_row(1)])
