"""The engine on the device: a lone request, and as many as it can take."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from loadtest.bench.gpu.checks import shape_of
from loadtest.bench.gpu.loaded_bundle import Subject
from serve.engine.admission import QueueLimits
from serve.engine.core import ModelShape
from serve.engine.engine import Engine
from serve.engine.row import Answer, Outcome, Row
from serve.engine.runner import Runner
from serve.rules import ExitRule, LayerRule, NeverRule

LENGTHS = (8, 64)  # of the texts, uniform
_LONE = 50
_PROBE_ROWS = 256
_WAIT_S = 120.0


class Throughput(NamedTuple):
    """What the engine gave under one way of leaving.

    Attributes:
        way: how rows leave.
        lone_ms: median time of a request that has the engine to itself.
        rows_per_s: answered while there were always rows waiting.
        rows: how many that was measured on.
    """

    way: str
    lone_ms: float
    rows_per_s: float
    rows: int


def measure_throughput(subject: Subject, seconds: float) -> list[Throughput]:
    """Return exits uniform over the layers beside the whole model for every row."""
    generator = np.random.default_rng(2)
    layers = subject.bundle.manifest.exit_layers
    every = shape_of(subject)
    last = ModelShape(
        replace(every.traits, exits=every.exits[-1:]), every.temperatures[-1:], every.pad_id
    )
    whole = subject.chain.presenting((len(subject.chain) - 1,))

    def anywhere() -> ExitRule:
        return LayerRule(layer=int(generator.choice(layers)))

    ways: list[tuple[str, Runner, ModelShape, Callable[[], ExitRule]]] = [
        ("exits uniform over the layers", subject.chain, every, anywhere),
        ("the whole model, exits asked in vain", subject.chain, every, NeverRule),
        ("the whole model, no exit asked", whole, last, NeverRule),
    ]
    found = []
    for way, runner, shape, rule in ways:
        drive = _Drive(runner, shape)
        rows = _rows(subject, generator, _PROBE_ROWS, rule)
        pace = len(rows) / drive.seconds(rows)
        lone_s = [drive.seconds([row]) for row in _rows(subject, generator, _LONE, rule)]
        many = _rows(subject, generator, max(_PROBE_ROWS, int(pace * seconds)), rule)
        rows_per_s = len(many) / drive.seconds(many)
        drive.stop()
        found.append(Throughput(way, 1e3 * float(np.median(lone_s)), rows_per_s, len(many)))
    return found


class _Drive:
    """An engine, given rows and waited for."""

    def __init__(self, runner: Runner, shape: ModelShape) -> None:
        self._left = 0
        self._failure: Exception | None = None
        self._done = threading.Event()
        limits = QueueLimits(max_rows=10**7, max_tokens=10**9)
        self._engine = Engine(runner, shape, self._deliver, queue_limits=limits)
        self._engine.start()

    def seconds(self, rows: Sequence[Row]) -> float:
        """Return how long it takes until all are answered."""
        self._left = len(rows)
        self._done.clear()
        start = time.perf_counter()
        self._engine.submit(rows)
        answered = self._done.wait(_WAIT_S)
        took_s = time.perf_counter() - start
        if self._failure or not answered:
            raise self._failure or TimeoutError(f"{len(rows)} rows were not answered")
        return took_s

    def stop(self) -> None:
        self._engine.stop(_WAIT_S)

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if not isinstance(outcome.result, Answer):
                self._failure = outcome.result
        self._left -= len(outcomes)
        if self._left <= 0:
            self._done.set()


def _rows(
    subject: Subject, generator: np.random.Generator, number: int, rule: Callable[[], ExitRule]
) -> list[Row]:
    shortest, longest = (min(length, subject.max_tokens) for length in LENGTHS)
    rows = []
    for length in generator.integers(shortest, longest + 1, number):
        ids = generator.integers(0, subject.vocabulary, length)
        rows.append(Row(ids, np.zeros_like(ids), rule()))
    return rows
