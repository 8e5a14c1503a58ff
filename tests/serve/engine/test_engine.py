"""The engine's thread: admission, delivery, drain, death."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from serve.engine import cost_model
from serve.engine.admission import QueueLimits
from serve.engine.engine import Engine
from serve.engine.row import Answer, Outcome
from serve.engine.shape import ModelShape
from serve.errors import Overloaded, Unavailable
from serve.rules import EntropyRule
from tests.serve.support.fake_runner import FakeRunner, Heads
from tests.serve.support.fake_runner import fake_row as row_for
from tests.serve.support.lost_device import ILLEGAL_ADDRESS
from tests.support.patience import until
from tests.support.traits import two_labels

EXITS = (1, 2)
fake_row = partial(row_for, exits=EXITS)
PATIENCE_S = 30.0


class Collected:
    """Takes outcomes in; `wait_for` returns once there are as many as asked for."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def __call__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes += outcomes

    def wait_for(self, count: int) -> dict[int, object]:
        until(lambda: len(self.outcomes) >= count)
        return {outcome.row.tag: outcome.result for outcome in self.outcomes}


class Gate:
    """Heads that hold the engine's thread in a segment until the test opens the gate."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, key: int, index: int) -> tuple[float, float]:
        self.entered.set()
        assert self.open.wait(PATIENCE_S)
        return 1.0, 0.0


MakeEngine = Callable[..., tuple[Engine, Collected]]


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    """Return a factory of started engines; all are stopped in the end."""
    engines = []

    def make(
        heads: Heads = lambda key, index: (1.0, 0.0), limits: QueueLimits | None = None
    ) -> tuple[Engine, Collected]:
        collected = Collected()
        engine = Engine(
            FakeRunner(len(EXITS), heads),
            ModelShape(two_labels(EXITS), (1.0,) * len(EXITS)),
            collected,
            queue_limits=limits or QueueLimits(),
        )
        engine.start()
        engines.append(engine)
        return engine, collected

    yield make
    for engine in engines:
        engine.stop(0)


def test_rows_from_many_threads_each_get_one_answer(make_engine: MakeEngine) -> None:
    engine, collected = make_engine()

    def submit(first: int) -> None:
        for key in range(first, first + 200, 4):
            engine.submit([fake_row(k, 1 + k % 7) for k in range(key, key + 4)])

    threads = [threading.Thread(target=submit, args=(1 + 200 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = collected.wait_for(800)
    assert sorted(results) == list(range(1, 801))
    assert all(isinstance(result, Answer) for result in results.values())
    assert engine.stop(PATIENCE_S)
    assert len(collected.outcomes) == 800
    assert engine.backlog[:2] == (0, 0)


def test_a_full_queue_refuses_all_rows_of_a_request_and_harms_no_other(
    make_engine: MakeEngine,
) -> None:
    gate = Gate()
    engine, collected = make_engine(gate, QueueLimits(max_rows=3, max_tokens=100))
    engine.submit([fake_row(1), fake_row(2)])
    with pytest.raises(Overloaded) as refusal:
        engine.submit([fake_row(3), fake_row(4)])
    assert refusal.value.retry_after_s >= 1
    engine.submit([fake_row(5)])
    gate.open.set()
    assert sorted(collected.wait_for(3)) == [1, 2, 5]
    engine.submit([fake_row(6), fake_row(7), fake_row(8)])
    collected.wait_for(6)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Let every device hang until the gate opens, and be taken for lost at once."""
    gate = Gate()
    monkeypatch.setattr(cost_model, "LEAST_HANG_S", 0.01)
    monkeypatch.setattr(cost_model, "HANG", 0)
    monkeypatch.setattr(FakeRunner, "read", lambda self: gate(0, 0))
    return gate


@pytest.mark.parametrize("num_rows", [1, 2], ids=["alone", "in a batch"])
def test_an_engine_whose_device_hangs_is_not_well(
    make_engine: MakeEngine, hanging: Gate, num_rows: int
) -> None:
    engine, collected = make_engine()
    engine.submit([fake_row(key) for key in range(1, 1 + num_rows)])
    assert hanging.entered.wait(PATIENCE_S)
    until(lambda: not engine.alive)
    hanging.open.set()
    collected.wait_for(num_rows)
    until(lambda: engine.alive)


def test_a_stop_does_not_wait_for_a_device_that_hangs(
    make_engine: MakeEngine, hanging: Gate
) -> None:
    engine, collected = make_engine()
    engine.submit([fake_row(1), fake_row(2)])
    assert hanging.entered.wait(PATIENCE_S)
    assert not engine.stop(PATIENCE_S)
    results = collected.wait_for(2)
    assert all(isinstance(result, Unavailable) for result in results.values())
    hanging.open.set()
    engine._thread.join(PATIENCE_S)
    assert len(collected.outcomes) == 2


def test_draining_refuses_new_rows_and_answers_those_it_has(make_engine: MakeEngine) -> None:
    gate = Gate()
    engine, collected = make_engine(gate)
    engine.submit([fake_row(key) for key in (1, 2, 3)])
    assert gate.entered.wait(PATIENCE_S)
    stopping = threading.Thread(target=engine.stop, args=(PATIENCE_S,))
    stopping.start()
    while True:
        try:
            engine.submit([fake_row(9)])
        except Unavailable:
            break
    gate.open.set()
    stopping.join()
    results = {k: v for k, v in collected.wait_for(3).items() if k != 9}
    assert all(isinstance(result, Answer) for result in results.values())
    assert not engine.alive


def test_a_drain_that_takes_too_long_ends_with_an_error_for_every_row(
    make_engine: MakeEngine,
) -> None:
    gate = Gate()
    engine, collected = make_engine(gate)
    unsure = EntropyRule(threshold=0.1)
    engine.submit([fake_row(1, 3, unsure), fake_row(2, 30, unsure)])
    assert gate.entered.wait(PATIENCE_S)
    verdicts: list[bool] = []
    stopping = threading.Thread(target=lambda: verdicts.append(engine.stop(0)))
    stopping.start()
    while not engine._aborting:
        pass
    gate.open.set()
    stopping.join()
    assert verdicts == [False]
    results = collected.wait_for(2)
    assert all(isinstance(result, Unavailable) for result in results.values())


@pytest.mark.parametrize("error", [SystemExit(), RuntimeError(ILLEGAL_ADDRESS)], ids=str)
def test_when_the_engine_dies_every_row_gets_an_error_and_health_shows_it(
    make_engine: MakeEngine, error: BaseException
) -> None:
    def heads(key: int, index: int) -> tuple[float, float]:
        if key == 1:
            raise error  # what no engine is allowed to survive
        return 1.0, 0.0

    engine, collected = make_engine(heads)
    engine.submit([fake_row(1, 3), fake_row(2, 3), fake_row(3, 30)])
    results = collected.wait_for(3)
    assert all(isinstance(result, Unavailable) for result in results.values())
    engine._thread.join(PATIENCE_S)
    assert not engine.alive
    with pytest.raises(Unavailable):
        engine.submit([fake_row(4)])
    assert len(collected.outcomes) == 3


def test_row_that_kills_the_engine_on_its_way_into_a_batch_is_not_lost(
    make_engine: MakeEngine,
) -> None:
    engine, collected = make_engine()
    no_rule = fake_row(1, 3)
    no_rule.rule = SimpleNamespace(first_heard=0)  # type: ignore[assignment]
    engine.submit([fake_row(2, 30), no_rule, fake_row(3, 3)])
    results = collected.wait_for(3)
    assert all(isinstance(results[key], Unavailable) for key in (1, 3))
    engine._thread.join(PATIENCE_S)
    assert len(collected.outcomes) == 3
    assert engine.backlog.rows == 0


def test_an_engine_that_never_started_admits_nothing() -> None:
    engine = Engine(
        FakeRunner(1, lambda k, i: (0.0,)), ModelShape(two_labels((1,)), (1.0,)), Collected()
    )
    with pytest.raises(Unavailable):
        engine.submit([fake_row(1)])
    assert engine.stop(0)


def test_rows_that_come_just_before_the_stop_are_answered() -> None:
    def come_and_stop() -> None:
        if engine._accepting:
            engine.submit([fake_row(1)])
            engine._accepting = False
            engine._inbox.put(())

    class Interrupted(SimpleQueue):  # type: ignore[type-arg]
        """All that others do happens while the engine's thread first looks at this inbox."""

        def empty(self) -> bool:
            found = super().empty()
            come_and_stop()
            return found

        def get(self, block: bool = True, timeout: float | None = None) -> object:
            come_and_stop()
            return super().get(block, timeout)

    collected = Collected()
    runner = FakeRunner(len(EXITS), lambda key, index: (1.0, 0.0))
    engine = Engine(runner, ModelShape(two_labels(EXITS), (1.0,) * len(EXITS)), collected)
    engine._inbox = Interrupted()
    engine._accepting = True
    engine._run()
    assert isinstance(collected.wait_for(1)[1], Answer)


def test_infinite_logits_are_passed_without_a_warning(make_engine: MakeEngine) -> None:
    engine, collected = make_engine(lambda key, index: (1.0, 0.0) if index else (math.inf, 0.0))
    engine.submit([fake_row(1, rule=EntropyRule(threshold=0.7))])
    result = collected.wait_for(1)[1]
    assert isinstance(result, Answer)
    assert result.exit_index == 1
