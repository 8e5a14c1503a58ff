"""The first flagged window answers for its text, and no row is lost or answered twice."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.classifier.race import Race
from serve.classifier.request import ModelRequest, settle_on_their_loops
from serve.engine.engine import Engine
from serve.engine.executor import ModelShape
from serve.engine.row import Answer, Outcome, Row
from serve.errors import Cancelled, ModelFailure
from serve.rules import LayerRule
from serve.rules.reason import Reason
from tests.serve.support.fake_runner import FakeRunner, fake_row
from tests.support.traits import two_labels

EXITS = (1, 2, 3)


def answer(flagged: bool) -> Answer:
    logits = np.array([0, 1 if flagged else -1], np.float32)
    return Answer(logits, 0, Reason.CONFIDENT, 0.0, 0.0, 0.0, 0)


def tagged(key: int, request: ModelRequest, **fields: Any) -> Row:
    row = fake_row(key + 1, **fields)
    row.waiter, row.tag = request, key
    return row


def is_flagged(_place: int, given: Answer) -> bool:
    return bool(given.logits[1] > 0)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    data=st.data(),
)
def test_the_winner_is_the_first_flagged_in_the_order_in_which_they_finish(
    sizes: list[int], data: st.DataObject
) -> None:
    text_of = [text for text, size in enumerate(sizes) for _ in range(size)]
    order = data.draw(st.permutations(range(len(text_of))))
    flagged = data.draw(st.lists(st.booleans(), min_size=len(text_of), max_size=len(text_of)))

    async def run() -> tuple[list[Answer | None], dict[int, int], list[bool]]:
        race = Race(text_of, is_flagged)
        request = ModelRequest([])
        rows = [tagged(key, request) for key in range(len(text_of))]
        request.expect(rows, race)
        for place in order:
            gone = Cancelled("another row has answered") if rows[place].cancelled else None
            request.settle(place, gone or answer(flagged[place]))
        return await request.answers(), race.winners, [row.cancelled for row in rows]

    answers, winners, cancelled = asyncio.run(run())
    for text, size in enumerate(sizes):
        mine = [place for place in order if text_of[place] == text]
        first = next((place for place in mine if flagged[place]), None) if size > 1 else None
        assert winners.get(text) == first
        done = mine if first is None else mine[: mine.index(first) + 1]
        assert {place for place in mine if answers[place]} == set(done)
        assert {place for place in mine if cancelled[place]} == set(mine) - set(done)


@settings(max_examples=40)
@given(data=st.data(), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_on_an_engine_every_row_has_one_outcome_and_texts_have_that_of_their_first_flagged(
    data: st.DataObject, sizes: list[int]
) -> None:
    text_of = [text for text, size in enumerate(sizes) for _ in range(size)]
    labels = data.draw(st.lists(st.booleans(), min_size=len(text_of), max_size=len(text_of)))
    leave_at = data.draw(
        st.lists(st.sampled_from(EXITS), min_size=len(text_of), max_size=len(text_of))
    )
    outcomes: list[Outcome] = []

    def deliver(delivered: Sequence[Outcome]) -> None:
        outcomes.extend(delivered)
        settle_on_their_loops(delivered)

    def heads(key: int, index: int) -> tuple[float, float]:
        return (0.0, 1.0) if labels[key - 1] else (1.0, 0.0)

    async def run() -> tuple[list[Answer | None], dict[int, int]]:
        race = Race(text_of, is_flagged_by_logits)
        request = ModelRequest([])
        rows = [
            tagged(key, request, rule=LayerRule(layer=layer), exits=EXITS)
            for key, layer in enumerate(leave_at)
        ]
        request.expect(rows, race)
        engine.submit(rows)
        return await request.answers(), race.winners

    shape = ModelShape(two_labels(EXITS), (1.0,) * len(EXITS))
    engine = Engine(FakeRunner(len(EXITS), heads), shape, deliver)
    engine.start()
    answers, winners = asyncio.run(run())
    assert engine.stop(60)
    assert sorted(outcome.row.tag for outcome in outcomes) == list(range(len(text_of)))
    assert engine.backlog[:2] == (0, 0)
    finished = [o.row.tag for o in outcomes if isinstance(o.result, Answer)]
    for text, size in enumerate(sizes):
        mine = [place for place in finished if text_of[place] == text]
        first = next((place for place in mine if labels[place]), None) if size > 1 else None
        assert winners.get(text) == first
        places = [place for place, of in enumerate(text_of) if of == text]
        if first is None:
            assert all(answers[place] is not None for place in places)
        else:
            assert answers[first] is not None


def is_flagged_by_logits(_place: int, given: Answer) -> bool:
    return bool(given.logits[1] > given.logits[0])


def test_an_error_before_any_flag_ends_the_request_and_one_after_it_is_of_no_account() -> None:
    async def run(results: Sequence[Answer | ModelFailure]) -> list[Answer | None]:
        race = Race([0] * len(results), is_flagged)
        request = ModelRequest([])
        request.expect([tagged(key, request) for key in range(len(results))], race)
        for place, result in enumerate(results):
            request.settle(place, result)
        return await request.answers()

    broken = ModelFailure("broken")
    with pytest.raises(ModelFailure):
        asyncio.run(run([answer(False), broken, answer(True)]))
    found = asyncio.run(run([answer(False), answer(True), broken]))
    assert [each is not None for each in found] == [True, True, False]
