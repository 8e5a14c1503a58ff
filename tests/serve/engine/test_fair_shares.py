"""Clients share the machine: a light one beside heavy ones, on a simulated device."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.engine.client_queues import MAX_DEBT_S, ClientQueues
from serve.engine.cost_model import SegmentCost
from serve.engine.row import Priority, Row
from tests.serve.support.simulated_engine import CPU, GPU, SimulatedEngine, rows_of


def alone_s(cost: SegmentCost, length: int) -> float:
    engine = SimulatedEngine(cost)
    (row,) = rows_of([length])
    engine.add([row])
    engine.run()
    return engine.waited_s[row]


def batch_s(cost: SegmentCost, length: int) -> float:
    """Return the time of a full batch through the model, which a new row may have to wait for."""
    engine = SimulatedEngine(cost)
    rows = rows_of([length] * 64)
    engine.add(rows)
    engine.run()
    return min(engine.waited_s.values())


@pytest.mark.parametrize("cost", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("heavy_length", [20, 300])
def test_a_light_client_hardly_notices_a_heavy_one(cost: SegmentCost, heavy_length: int) -> None:
    engine = SimulatedEngine(cost)
    engine.add(rows_of([heavy_length] * 2000, client="heavy"))
    engine.run(until_rows=1900)
    light: list[Row] = []
    for _ in range(10):
        light += rows_of([20], client="light")
        engine.add(light[-1:])
        while light[-1] not in engine.waited_s:
            engine.step()
    # It waits for the batch in flight, and for one that it starts with.
    bound_s = alone_s(cost, 20) + 2 * batch_s(cost, heavy_length)
    assert max(engine.waited_s[row] for row in light) <= bound_s


@pytest.mark.parametrize("cost", [CPU, GPU], ids=["cpu", "gpu"])
def test_two_busy_clients_get_half_each_though_one_came_first(cost: SegmentCost) -> None:
    engine = SimulatedEngine(cost)
    first, second = (rows_of([50] * 600, client=name) for name in "ab")
    engine.add(first)
    engine.run(until_rows=500)
    done = len(engine.waited_s)
    engine.add(second)
    engine.run(until_rows=len(first) - done + len(second) - 400)
    served = sum(row in engine.waited_s for row in second)
    assert 150 <= served <= 270


def test_a_busy_client_is_not_starved_by_ever_new_ones() -> None:
    engine = SimulatedEngine(CPU)
    rows = rows_of([20] * 40, client="busy")
    engine.add(rows)
    for i in range(3000):
        if rows[-1] in engine.waited_s:
            break
        # More than the device can do: a row for each step, of which a row needs several.
        engine.add(rows_of([200], client=f"new {i}"))
        engine.step()
    assert rows[-1] in engine.waited_s


def test_priority_still_goes_first_between_clients() -> None:
    engine = SimulatedEngine(CPU)
    engine.add(rows_of([200] * 50, client="a", priority=Priority.LOW))
    engine.add(rows_of([200] * 50, client="b"))
    (high,) = rows_of([200], client="c", priority=Priority.HIGH)
    engine.add([high])
    engine.run()
    last = {name: max(t for r, t in engine.waited_s.items() if r.client == name) for name in "ab"}
    assert engine.waited_s[high] == min(engine.waited_s.values())
    first_low = min(t for r, t in engine.waited_s.items() if r.client == "a")
    assert first_low >= last["b"]


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 300), st.sampled_from(Priority)),
        min_size=1,
        max_size=60,
    )
)
def test_one_client_s_rows_go_as_if_it_were_alone(plan: list[tuple[str, int, Priority]]) -> None:
    """With all rows of one client, names change nothing; with several, every row is answered."""
    waited = []
    for names in (lambda name: "", lambda name: "one", lambda name: name):
        engine = SimulatedEngine(CPU)
        rows = [
            row
            for name, length, priority in plan
            for row in rows_of([length], client=names(name), priority=priority)
        ]
        engine.add(rows)
        engine.run()
        waited.append([engine.waited_s[row] for row in rows])
    assert waited[0] == waited[1]
    assert len(waited[2]) == len(plan)


def test_what_is_remembered_of_clients_is_bounded() -> None:
    engine = SimulatedEngine(CPU)
    queues: ClientQueues = engine._scheduler._waiting._queue
    for i in range(100):
        engine.add(rows_of([200] * 3, client=f"client {i}"))
        engine.run()
    assert not queues._clients
    # Rows that leave early take less than they are charged for, so debts grow.
    engine.add(rows_of([200] * 900, 1, client="a") + rows_of([200] * 900, 1, client="b"))
    debts = [0.0]
    while engine.admission.held.rows:
        engine.step()
        debts += [client.next_s - engine.now_s for client in queues._clients.values()]
    assert MAX_DEBT_S / 2 < max(debts) <= MAX_DEBT_S
