"""Answers that are given again: to whom, for how long, and what becomes of those who wait."""

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.access.gate import Client
from serve.bundle.loader import load_bundle
from serve.classifier.answer_cache import AnswerCache
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.classifier.classify_request import ClassifyRequest
from serve.classifier.options import EngineOptions
from serve.dialects.v1.answer import write
from serve.engine.row import Answer, Priority, Row
from serve.errors import Cancelled, DeadlineExceeded, ModelFailure, OfframpError, Overloaded
from serve.policy.document import Policy
from serve.rules import EntropyRule, LayerRule
from serve.rules.criterion import Reason
from tests.serve.support.classifiers import running
from tests.serve.support.fake_runner import fake_row
from tests.serve.support.task_bundles import Kind, write_task_bundle

ANSWER = Answer(np.array([-1.1, 2.3], np.float32), 3, Reason.CONFIDENT, 0.25, 0.5, 0.75, 3)


class Waits:
    """A request of one row."""

    def __init__(self) -> None:
        self.loop, self.got = asyncio.get_running_loop(), list[Answer | OfframpError]()

    def settle(self, place: int, result: Answer | OfframpError) -> None:
        self.got.append(result)


class Cached:
    """A cache before an engine that answers when it is told."""

    def __init__(self, max_bytes: int = 2**20) -> None:
        self.ran, self.observed, self.full = list[Row](), list[Answer](), False
        self.cache = AnswerCache(max_bytes, self._submit, lambda a, n: self.observed.append(a))

    def ask(self, key: int = 1, **fields: Any) -> tuple[Row, Waits]:
        """Send a request of one text."""
        waits = Waits()
        row = fake_row(key, waiter=waits, **fields)
        row.tag = 0
        rows = [row]
        known = self.cache.look(rows, {})
        waits.got += known.answers.values()
        if known.to_run:
            self._submit(known.to_run)
        return rows[0], waits

    def answer(self, result: Answer | OfframpError = ANSWER) -> None:
        """Let the engine give its next outcome."""
        row = self.ran.pop(0)
        assert row.waiter
        row.waiter.settle(row.tag, result)

    def _submit(self, rows: Sequence[Row]) -> None:
        if self.full:
            raise Overloaded("full", 1)
        self.ran += rows


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))  # type: ignore[arg-type]

    return run


@on_a_loop
async def test_an_answer_is_given_again_to_the_bit_without_the_times_of_its_run() -> None:
    cached, batch = Cached(), np.array([[-1.1, 2.3], [0, 1]], np.float32)
    cached.ask()
    cached.answer(ANSWER._replace(logits=batch[0]))
    batch[:] = 0  # a kept answer holds no part of the batch
    _, again = cached.ask()
    (found,) = again.got
    assert isinstance(found, Answer)
    assert found.logits.tobytes() == ANSWER.logits.tobytes()
    same = ANSWER._replace(queue_s=0.0, compute_s=0.0, cached=True)
    assert found._replace(logits=ANSWER.logits) == same
    assert cached.observed == [found]
    assert cached.cache.counted == {"hit": 1, "waited": 0, "miss": 1}


@pytest.mark.parametrize(
    "other",
    [
        {"key": 2},
        {"num_tokens": 4},
        {"client": "key:other"},
        {"rule": EntropyRule(threshold=0.2)},
        {"counted": np.ones(3, np.bool_)},
    ],
)
@on_a_loop
async def test_no_answer_is_given_to_another_text_client_or_rule(other: dict[str, Any]) -> None:
    cached = Cached()
    cached.ask()
    cached.answer()
    _, waits = cached.ask(**other)
    assert not waits.got
    assert len(cached.ran) == 1


@on_a_loop
async def test_a_text_is_computed_once_although_the_first_to_ask_has_left() -> None:
    cached = Cached()
    first, _ = cached.ask()
    others = [cached.ask()[1] for _ in range(3)]
    first.cancelled = True
    assert not cached.ran[0].cancelled
    cached.answer()
    assert not cached.ran
    assert [[each.cached for each in waits.got] for waits in others] == [[True]] * 3  # type: ignore[union-attr]
    assert cached.cache.counted == {"hit": 0, "waited": 3, "miss": 1}


@on_a_loop
async def test_a_text_that_nobody_waits_for_any_more_is_not_computed() -> None:
    cached = Cached()
    for row, _ in [cached.ask() for _ in range(3)]:
        assert not cached.ran[0].cancelled
        row.cancelled = True
    assert cached.ran[0].cancelled


CUT = ANSWER._replace(reason=Reason.DEADLINE)


@pytest.mark.parametrize("result", [Cancelled("left"), ModelFailure("no"), CUT])
@on_a_loop
async def test_who_waits_for_a_row_without_a_whole_answer_is_computed_itself(
    result: Answer | OfframpError,
) -> None:
    cached = Cached()
    _, own = cached.ask()
    _, waits = cached.ask()
    cached.answer(result)
    assert own.got == [result]
    cached.answer()
    assert waits.got == [ANSWER]
    _, third = cached.ask()
    assert not third.got, "half an answer was kept"


@on_a_loop
async def test_who_waits_gets_the_error_of_a_full_queue() -> None:
    cached = Cached()
    cached.ask()
    _, waits = cached.ask()
    cached.full = True
    cached.answer(ModelFailure("no"))
    assert isinstance(waits.got[0], Overloaded)


@on_a_loop
async def test_who_waits_keeps_its_own_deadline() -> None:
    cached = Cached()
    _, own = cached.ask()
    (row, late), (_, patient) = cached.ask(deadline_s=0.0), cached.ask(deadline_s=1e9)
    while not late.got:
        await asyncio.sleep(0)
    assert isinstance(late.got[0], DeadlineExceeded)
    assert row.cancelled
    cached.answer()
    assert len(own.got) == len(late.got) == len(patient.got) == 1
    assert isinstance(patient.got[0], Answer)


@on_a_loop
async def test_no_row_waits_for_one_that_would_come_after_it() -> None:
    cached = Cached()
    cached.ask(priority=Priority.LOW)
    cached.ask(priority=Priority.HIGH)
    assert len(cached.ran) == 2


@on_a_loop
async def test_nobody_waits_for_a_row_that_the_engine_has_refused() -> None:
    cached, rows = Cached(), [fake_row(1, waiter=Waits())]
    rows[0].tag = 0
    cached.cache.forget(cached.cache.look(rows, {}).to_run)
    cached.ask()
    assert len(cached.ran) == 1


@on_a_loop
async def test_the_answers_that_were_not_asked_for_the_longest_make_room() -> None:
    cached = Cached(max_bytes=3500)
    for key in (1, 2, 3):
        cached.ask(key)
        cached.answer()
    cached.ask(1)
    cached.ask(4)
    cached.answer()
    assert cached.cache.num_bytes <= 3500
    found = [bool(cached.ask(key)[1].got) for key in (1, 2, 3, 4)]
    assert found == [True, False, True, True]


def served(folder: Path, answer_cache_mb: float | None) -> AbstractContextManager[Classifier]:
    bundle = load_bundle(write_task_bundle(folder, Kind("single_label"), "tiny", sure=3.0))
    policy = Policy.model_validate({"audit": {"share": 1}, "default": LayerRule(layer=1)})
    return running(bundle, policy, answer_cache_mb=answer_cache_mb)


def ask(
    classifier: Classifier, client: str = "key:a", returned: Sequence[str] = ()
) -> Classification:
    asked = {"inputs": ["w1 w2", "w3", "w1 w2"], "return": list(returned)}
    body = ClassifyRequest.model_validate(asked)
    request = Classification(body, Client(client))
    asyncio.run(classifier.classify(request))
    return request


def test_answers_are_the_same_as_without_a_cache_and_say_that_they_were_kept(
    tmp_path: Path,
) -> None:
    with served(tmp_path / "off", None) as off, served(tmp_path / "on", 1) as on:
        plain, first, again = ask(off), ask(on), ask(on)
        for request, cached in ((first, [False, False, True]), (again, [True] * 3)):
            assert [answer.cached for answer in request.answers] == cached
            for one, other in zip(request.answers, plain.answers, strict=True):
                assert one.logits.tobytes() == other.logits.tobytes()
                assert (one.exit_index, one.reason) == (other.exit_index, other.reason)
        assert b'"cached":true' in write(again).content
        assert b"cached" not in write(plain).content
        assert not ask(on, returned=["exits"]).answers[0].cached


def test_another_key_and_another_policy_have_answers_of_their_own(tmp_path: Path) -> None:
    with served(tmp_path, 1) as classifier:
        ask(classifier)
        assert not ask(classifier, "key:b").answers[0].cached
        policy = classifier.policy.current.policy
        classifier.policy.change(policy.model_copy(update={"default": LayerRule(layer=2)}), None)
        assert not ask(classifier).answers[0].cached


def test_an_answer_that_is_given_again_is_not_audited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path, 1) as classifier:
        drawn = list[Sequence[int]]()
        monkeypatch.setattr(classifier.audits, "audit_soon", lambda _, places: drawn.append(places))
        ask(classifier)
        ask(classifier)
        assert drawn == [[0, 1]]


def test_a_bound_is_a_positive_number() -> None:
    with pytest.raises(ValueError, match="answer_cache_mb"):
        EngineOptions(answer_cache_mb=-math.inf)
