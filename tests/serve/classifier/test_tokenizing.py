"""Long texts on the pool: in pieces, by a few threads, in turns, and only while they matter."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from serve.assembly import assemble
from serve.bundle.loader import Bundle
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.classifier.classify_request import ClassifyRequest
from serve.classifier.options import EngineOptions
from serve.errors import DeadlineExceeded, InvalidRequest, Overloaded
from serve.policy.database import Database
from serve.tokenization.inputs import PIECE_CHARS, Input
from serve.tokenization.tokenizer import Text, Tokens
from tests.serve.support.classifiers import running

# Four pieces.
LONG = ["w1 " * 60 + " " * 3000] * 80
THREADS = 2


def asking(inputs: list[Any]) -> Classification:
    return Classification(ClassifyRequest(inputs=inputs))


class Gate:
    """Stands before the tokenizer: counts calls, and lets them through when told."""

    def __init__(self, read: Callable[..., list[Tokens]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        self.sizes: list[int] = []
        self.threads: list[int] = []
        self.now = self.most = 0

    def __call__(
        self, inputs: Sequence[Input], truncate: bool, first: int = 0, plain: bool = False
    ) -> list[Tokens]:
        with self._lock:
            self.threads.append(threading.get_ident())
            self.sizes.append(sum(len(text.text) for text in inputs if isinstance(text, Text)))
            self.now += 1
            self.most = max(self.most, self.now)
        self.entered.release()
        assert self.open.wait(60)
        with self._lock:
            self.now -= 1
        return self._read(inputs, truncate, first, plain)


@pytest.fixture
def classifier(bundle: Bundle) -> Iterator[Classifier]:
    with running(
        bundle, bundle.manifest.policy, THREADS, precision="fp32", max_queue_tokens=10_000
    ) as classifier:
        yield classifier


@pytest.fixture
def gate(classifier: Classifier, monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate(classifier.inputs.read)
    monkeypatch.setattr(classifier.inputs, "read", gate)
    return gate


async def until_entered(gate: Gate, times: int) -> None:
    for _ in range(times):
        await asyncio.to_thread(gate.entered.acquire)


def test_few_pieces_are_tokenized_at_once_however_many_requests_come(
    classifier: Classifier, gate: Gate
) -> None:
    async def run() -> list[object]:
        tasks = [asyncio.ensure_future(classifier.classify(asking(LONG))) for _ in range(2)]
        short = classifier.classify(asking(["w1"]))
        await until_entered(gate, THREADS)
        gate.open.set()
        return await asyncio.gather(*tasks, short)

    assert len(asyncio.run(run())) == 3
    assert gate.most <= THREADS + 1  # the short one is tokenized by the event loop
    assert len(gate.sizes) == 2 * 4 + 1
    assert max(gate.sizes) <= PIECE_CHARS


@pytest.mark.parametrize(
    ("inputs", "inline"),
    [
        (["w1 " * 33] * 5, True),
        (["w1 " * 33] * 6, False),
        ([{"text": "w1", "text_pair": "w1 " * 60}, *["w1 " * 33] * 4], False),
        ([{"input_ids": [1] * 64}] * 20, True),
    ],
)
def test_only_short_texts_and_ids_are_tokenized_by_the_event_loop(
    classifier: Classifier, gate: Gate, inputs: list[Any], inline: bool
) -> None:
    gate.open.set()
    asyncio.run(classifier.classify(asking(inputs)))
    assert (gate.threads == [threading.get_ident()]) == inline


@pytest.mark.parametrize("inputs", [["." * 600], ["w1 " * 60] * 2000])
def test_tokens_that_were_made_in_vain_are_told(classifier: Classifier, inputs: list[Any]) -> None:
    request = asking(inputs)
    with pytest.raises(InvalidRequest):
        asyncio.run(classifier.classify(request))
    assert not request.queued
    assert request.num_tokens >= 600


def test_as_many_threads_tokenize_as_the_options_say(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = EngineOptions(precision="fp32", num_threads=1, tokenizer_threads=3)
    catalog = assemble([bundle.folder], options, Database()).catalog
    catalog.set_baselines({})
    classifier = catalog.pick(None)
    gate = Gate(classifier.inputs.read)
    monkeypatch.setattr(classifier.inputs, "read", gate)

    async def run() -> None:
        tasks = [asyncio.ensure_future(classifier.classify(asking(LONG))) for _ in range(9)]
        await until_entered(gate, 3)
        gate.open.set()
        await asyncio.gather(*tasks)

    catalog.start()
    asyncio.run(run())
    catalog.stop(60)
    assert gate.most == 3


def test_a_cancelled_request_is_not_tokenized_further(classifier: Classifier, gate: Gate) -> None:
    async def run() -> None:
        tasks = [asyncio.ensure_future(classifier.classify(asking(LONG))) for _ in range(5)]
        await until_entered(gate, THREADS)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        gate.open.set()

    asyncio.run(run())
    assert len(gate.sizes) == THREADS


def test_a_request_that_expires_while_it_waits_is_not_tokenized(
    classifier: Classifier, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(classifier.engine, "clock", lambda: now[0])

    async def run() -> None:
        first = [asyncio.ensure_future(classifier.classify(asking(LONG))) for _ in range(2)]
        await until_entered(gate, THREADS)
        # A text that is too long, which would be the error if it were looked at.
        request = Classification(
            ClassifyRequest(inputs="w1 " * 4000, timeout_ms=1000), arrived_s=0.0
        )
        late = asyncio.ensure_future(classifier.classify(request))
        await asyncio.sleep(0)
        now[0] = 2.0
        gate.open.set()
        with pytest.raises(DeadlineExceeded):
            await late
        for task in first:
            task.cancel()
        await asyncio.wait(first)

    asyncio.run(run())


def test_a_request_of_more_tokens_than_the_queue_takes_is_not_tokenized_to_its_end(
    classifier: Classifier, gate: Gate
) -> None:
    gate.open.set()
    too_much = asking(["w1 " * 60] * 2000)
    with pytest.raises(InvalidRequest):
        asyncio.run(classifier.classify(too_much))
    assert sum(gate.sizes) < 180 * 2000 / 2


def test_requests_that_are_tokenized_at_once_share_the_room_in_the_queue(
    classifier: Classifier, gate: Gate
) -> None:
    """Else each would be tokenized to its end, and all but the first be refused then."""
    gate.open.set()

    async def run() -> list[object]:
        # 80 rows of 62 tokens each: two of the requests fit
        calls = [classifier.classify(asking(LONG)) for _ in range(20)]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    results = asyncio.run(run())
    assert None in results
    assert all(result is None or isinstance(result, Overloaded) for result in results)
    assert len(gate.sizes) < 20 * 4 / 2


_COUNT_THREADS = """
import os, sys
from serve.classifier.options import EngineOptions
from serve.assembly import assemble
from serve.policy.database import Database
from serve.tokenization.tokenizer import Text

options = EngineOptions(precision="fp32", num_threads=1)
[classifier] = assemble([sys.argv[1]], options, Database()).catalog
before = len(os.listdir("/proc/self/task"))
classifier.inputs.read([Text("w1 w2")] * 200, truncate=False)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="Linux lists threads there")
def test_the_library_starts_no_threads_of_its_own(bundle: Bundle) -> None:
    command = [sys.executable, "-c", _COUNT_THREADS, str(bundle.folder)]
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    environment["RAYON_NUM_THREADS"] = "4"  # it would start as many
    done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=60)
    assert int(done.stdout) == 0
