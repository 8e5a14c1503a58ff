"""Texts on their way through a small model and a large one, whatever happens there."""

import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from serve.bundle.loader import load_bundle
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.classifier.classify_request import ClassifyRequest
from serve.classifier.small_exits import SmallExits
from serve.engine.engine import Engine
from serve.engine.row import Answer
from serve.errors import ModelFailure, Overloaded, Unavailable
from serve.rules import ConfidenceRule, NeverRule
from serve.rules.criterion import Reason
from serve.rules.small import SmallRule
from serve.tokenization.inputs import Ids
from serve.tokenization.tokenizer import Text
from tests.serve.support.classifiers import running
from tests.serve.support.small_models import (
    MOST_TOKENS,
    NUM_SMALL_EXITS,
    put_in_front,
    write_cascade,
    write_small,
)
from tests.serve.support.task_bundles import VOCAB_SIZE, Kind, write_task_bundle
from tests.support.patience import until
from tests.support.tiny import WORDS

SMALL = 0.7
RULE = ConfidenceRule(threshold=0.9, small=SmallRule(threshold=SMALL))
# All go on: the first exit of the large model answers.
UNSURE = ConfidenceRule(threshold=0.0, small=SmallRule(threshold=1.0))
LONG = " ".join(WORDS[:MOST_TOKENS])
NONE = {**ConfidenceRule(threshold=0.9).model_dump(exclude_none=True)}


def texts_of(number: int) -> list[str]:
    draw = random.Random(number)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(number)]


class Served:
    """A model with a small one in front, and requests to it."""

    def __init__(self, classifier: Classifier, pool: ThreadPoolExecutor) -> None:
        self.classifier, self._pool = classifier, pool
        assert classifier.cascade
        self.small, self.large = classifier.cascade.engine, classifier.engine

    def ask(self, inputs: Sequence[Any], rule: Any = RULE, **fields: Any) -> Classification:
        """Classify inputs, and return the request with its answers."""
        body = ClassifyRequest.model_validate({"inputs": list(inputs), "exit": rule, **fields})
        request = Classification(body)
        asyncio.run(self.classifier.classify(request))
        return request

    def soon(self, inputs: Sequence[Any], rule: Any = RULE, **fields: Any) -> Future[Any]:
        """Classify inputs on another thread."""
        return self._pool.submit(self.ask, inputs, rule, **fields)

    @property
    def num_waiting(self) -> int:
        return sum(engine.backlog.rows for engine in (self.small, self.large))


@contextmanager
def serving(folder: Path, **options: Any) -> Iterator[Served]:
    with ThreadPoolExecutor(8) as pool, running(load_bundle(folder), **options) as classifier:
        yield Served(classifier, pool)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cascade(tmp_path_factory.mktemp("cascade"))


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(folder) as model:
        yield model


@contextmanager
def held(engine: Engine) -> Iterator[None]:
    """Let an engine take rows meanwhile, and run none."""
    core, gate = engine._core, threading.Event()
    step = core.step

    def wait() -> Any:
        gate.wait()
        return step()

    core.step = wait  # type: ignore[method-assign]
    try:
        yield
    finally:
        core.step = step  # type: ignore[method-assign]
        gate.set()


def shown(answer: Answer) -> tuple[Any, ...]:
    # The hand-written model sees padding in the last digits.
    logits = np.round(answer.logits.astype(float), 3).tolist()
    return answer.exit_index, answer.head_index, answer.reason, logits


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_a_text_is_answered_alike_alone_and_among_others(tmp_path: Path, task: Any) -> None:
    texts = texts_of(120)
    with serving(write_cascade(tmp_path, task)) as served:
        together = [shown(answer) for answer in served.ask(texts).answers]
        assert [shown(served.ask([text]).answers[0]) for text in texts] == together
    left = {answer[0] for answer in together}
    assert min(left) < 0 <= max(left)
    assert {answer[2] for answer in together if answer[0] < 0} == {Reason.CONFIDENT}


def test_what_leaves_in_the_small_model_has_its_answer_by_the_large_ones_labels(
    served: Served,
) -> None:
    small, texts = served.classifier.bundle.small, texts_of(60)
    assert small
    asked = {"inputs": texts, "exit": NeverRule(), "return": ["exits"]}
    alone = Classification(ClassifyRequest.model_validate(asked))
    with running(small) as classifier:
        asyncio.run(classifier.classify(alone))
    assert served.classifier.traits.labels == classifier.traits.labels[::-1]
    found = served.ask(texts).answers
    for one, other in zip(found, alone.answers, strict=True):
        if one.exit_index < 0:
            own = other.exit_trace[one.exit_index + NUM_SMALL_EXITS]
            assert one.logits == pytest.approx(own.logits[::-1], abs=1e-3)
    assert any(one.exit_index < 0 for one in found)


def test_long_texts_and_foreign_ids_go_to_the_large_model_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.small, "submit", None)
    answers = served.ask([LONG, {"input_ids": [2, 9, 3]}], {**NONE, "small": 0.0}).answers
    assert min(answer.exit_index for answer in answers) >= 0


def test_windows_skip_the_small_model_and_the_text_beside_them_does_not(tmp_path: Path) -> None:
    large = write_task_bundle(tmp_path, Kind("single_label"), "tiny")
    rule, windows = {**NONE, "small": 0.0}, {"stride": 4}
    # The small model would take the whole text.
    with serving(put_in_front(large, write_small(tmp_path, max_tokens=500))) as served:
        found = served.ask([" ".join(WORDS[:90]), "w1 w2"], rule, windows=windows)
    cut, beside = found.answers
    assert min(found.reports[0].exit_indices) >= 0
    assert (cut.exit_index >= 0, beside.exit_index) == (True, -NUM_SMALL_EXITS)


def test_ids_of_the_same_tokenizer_are_answered_as_their_text(tmp_path: Path) -> None:
    with serving(write_cascade(tmp_path, same_tokens=True)) as served:
        (ids,) = served.classifier.inputs.read([Text("w1 w2")], False)
        given = {"input_ids": ids.input_ids.tolist()}
        text, same = served.ask(["w1 w2", given], {**NONE, "small": 0.0}).answers
        assert (text.exit_index, shown(same)) == (-NUM_SMALL_EXITS, shown(text))
        # One that the small model has no row for would fail in it.
        exits = SmallExits(served.classifier.bundle)
        known, unknown = exits.read([Ids([2, 9, 3]), Ids([2, VOCAB_SIZE, 3])], False)
        assert known
        assert unknown is None


def test_what_has_not_left_at_its_last_layer_there_goes_on(served: Served) -> None:
    for small, ran in (
        ({"threshold": 1.0, "max_layer": 2}, [-3, -2, 0]),
        ({"threshold": 0.0, "min_layer": 2}, [-3, -2]),
        ({"threshold": 1.0, "min_layer": 4, "max_layer": 4}, [-3, -2, -1, 0]),
    ):
        rule = {"rule": "layer", "layer": 1, "small": small}
        (answer,) = served.ask(["w1 w2 w3"], rule, **{"return": ["exits"]}).answers
        assert [record.exit_index for record in answer.exit_trace] == ran


def test_a_client_that_leaves_takes_its_text_with_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    went_on = Mock(side_effect=served.large.submit)
    monkeypatch.setattr(served.large, "submit", went_on)

    async def leave(engine: Engine) -> None:
        request = Classification(ClassifyRequest.model_validate({"inputs": ["w1"], "exit": UNSURE}))
        task = asyncio.create_task(served.classifier.classify(request))
        while not engine.backlog.rows:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for engine in (served.small, served.large):
        with held(engine):
            asyncio.run(leave(engine))
        until(lambda: not served.num_waiting)
        assert went_on.called is (engine is served.large)
    assert len(served.ask(["w1"], UNSURE).answers) == 1


def test_a_deadline_behind_the_small_model_leaves_with_its_answer(served: Served) -> None:
    with held(served.large):
        asked = served.soon(["w1 w2"], UNSURE, timeout_ms=2000)
        until(lambda: served.large.backlog.rows == 1)
        (row,) = served.large._unanswered
        until(lambda: Engine.clock() > row.deadline_s)
    (answer,) = asked.result().answers
    assert (answer.reason, answer.exit_index) == (Reason.DEADLINE, -1)
    assert np.isfinite([answer.queue_s, answer.compute_s]).all()


def test_times_are_those_of_both_models(served: Served) -> None:
    with held(served.large):
        asked = served.soon(["w1 w2"], UNSURE)
        until(lambda: served.large.backlog.rows == 1)
        (row,) = served.large._unanswered
    (answer,) = asked.result().answers
    assert row.so_far
    assert answer.compute_s > row.so_far.compute_s > 0


@pytest.mark.parametrize("full", ["small", "large"])
def test_a_full_queue_in_either_refuses_the_request_and_runs_no_other_text_of_it(
    served: Served, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    def refuse(rows: Any) -> None:
        raise Overloaded("full", 1)

    engine, other = (served.small, served.large)[:: 1 if full == "small" else -1]
    monkeypatch.setattr(engine, "submit", refuse)
    with held(other):
        asked = served.soon(["w1", LONG] if full == "small" else ["w1"], UNSURE)
        if full == "small":
            with pytest.raises(Overloaded):
                asked.result()
            assert all(row.cancelled for row in other._unanswered)
    if full == "large":
        with pytest.raises(Overloaded):
            asked.result()
    until(lambda: not served.num_waiting)


def test_an_error_in_the_small_model_is_that_of_its_texts_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise ValueError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(served.small._core._runner, "start", fail)
        with pytest.raises(ModelFailure):
            served.ask(["w1"])
        assert served.ask([LONG]).answers[0].exit_index >= 0
    assert len(served.ask(["w1"]).answers) == 1


def test_a_stop_in_the_middle_answers_what_was_admitted(folder: Path) -> None:
    texts = texts_of(30)
    with serving(folder) as served:
        expected = [shown(answer) for answer in served.ask(texts, UNSURE).answers]
        with held(served.small), held(served.large):
            asked = [served.soon([text], UNSURE) for text in texts[:4]]
            until(lambda: served.small.backlog.rows == 4)
            stopping = threading.Thread(target=served.classifier.stop, args=(60,))
            stopping.start()
            until(lambda: not served.small._accepting)
        stopping.join()
        assert [shown(each.result().answers[0]) for each in asked] == expected[:4]


def test_a_drain_that_takes_too_long_is_given_up_for_both_together(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, now = list[float](), [0.0]

    def stop(drain_s: float) -> bool:
        given.append(drain_s)
        now[0] += 7
        return True

    monkeypatch.setattr(served.large, "clock", lambda: now[0], raising=False)
    monkeypatch.setattr(served.small, "clock", lambda: now[0], raising=False)
    for engine in served.classifier.engines:
        monkeypatch.setattr(engine, "stop", stop)
    monkeypatch.setattr(served.classifier.audits, "stop", lambda: None)
    served.classifier.stop(10)
    assert given == [10, 3]


def test_kept_answers_are_those_of_the_cascade(folder: Path) -> None:
    with serving(folder, answer_cache_mb=1) as served:
        texts = texts_of(20)
        first, again = served.ask(texts).answers, served.ask(texts).answers
        assert [shown(each) for each in again] == [shown(each) for each in first]
        assert all(each.cached for each in again)
        one, other = asyncio.run(at_once(served, "w5 w6"))
        assert shown(one) == shown(other)
        assert (one.cached, other.cached) == (False, True)


async def at_once(served: Served, text: str) -> list[Answer]:
    """Return the answers of two requests, of which the second waits for the first."""
    body, cache = {"inputs": [text], "exit": RULE}, served.classifier.cache
    assert cache
    requests = [Classification(ClassifyRequest.model_validate(body)) for _ in range(2)]
    with held(served.small):
        tasks = [asyncio.create_task(served.classifier.classify(each)) for each in requests]
        while not cache.counted["waited"]:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return [request.answers[0] for request in requests]


def test_one_that_has_died_is_no_model_that_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(folder) as served:
        monkeypatch.setattr(served.small._core, "step", Mock(side_effect=SystemExit))
        with pytest.raises(Unavailable, match="died"):
            served.ask(["w1"])
        until(lambda: not served.classifier.alive)
        assert served.large.alive
