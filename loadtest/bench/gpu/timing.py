"""Times of single batches: segments against one graph, early exits, batch sizes."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime as ort

from loadtest.bench.gpu.loaded_bundle import Subject, random_ids
from serve.bundle.manifest import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from serve.runtime.cuda_runner import CudaRunner, OpenSession

SHAPES = ((1, 8), (1, 32), (1, 128), (8, 32), (32, 32), (32, 128))
SCALING_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SCALING_TOKENS = 32
_WARM_UP = 3
_FEWEST = 5

_Feeds = dict[str, np.ndarray]


class Timing(NamedTuple):
    """Medians of one shape, in milliseconds.

    Attributes:
        rows: in the batch.
        tokens: of each row; nothing is padding.
        until_exit_ms: per exit, from the start until its logits are on the host.
        unasked_ms: all segments, with the logits of the last exit alone.
        one_graph_ms: the same model as one graph; None if there is none.
    """

    rows: int
    tokens: int
    until_exit_ms: tuple[float, ...]
    unasked_ms: float
    one_graph_ms: float | None


class BatchSize(NamedTuple):
    """What a batch of so many rows takes through all segments, every exit asked."""

    rows: int
    tokens: int
    ms: float
    rows_per_s: float


class OneGraph:
    """The whole model in one session; `python -m loadtest.bench.one_graph` writes the file."""

    def __init__(self, path: Path, open_session: OpenSession) -> None:
        self._session: ort.InferenceSession = open_session(path)
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._output = self._session.get_outputs()[0].name

    def run(self, feeds: _Feeds) -> np.ndarray:
        """Return (rows, labels) logits on the host."""
        return self._session.run([self._output], {n: feeds[n] for n in self._inputs})[0]


def time_shapes(
    subject: Subject,
    one_graph: OneGraph | None,
    seconds: float,
    shapes: Sequence[tuple[int, int]] = SHAPES,
) -> list[Timing]:
    """Return the times of every shape that the model takes; `seconds` for each."""
    fitting = [(rows, tokens) for rows, tokens in shapes if tokens <= subject.max_tokens]
    return [_time_shape(subject, one_graph, shape, seconds) for shape in fitting]


def time_batch_sizes(subject: Subject, seconds: float) -> list[BatchSize]:
    """Return what ever larger batches take; `seconds` for each."""
    tokens = min(SCALING_TOKENS, subject.max_tokens)
    found = []
    for rows in SCALING_ROWS:
        feeds = _feeds(subject, rows, tokens)
        (times,) = _medians_s([partial(until_exits, subject.chain, feeds)], seconds)
        found.append(BatchSize(rows, tokens, 1e3 * times[-1], rows / times[-1]))
    return found


def until_exits(chain: CudaRunner, feeds: _Feeds) -> list[float]:
    """Return the seconds from the start until each exit's logits were on the host."""
    mask = feeds[ATTENTION_MASK]
    every_row = np.arange(len(mask))
    start = time.perf_counter()
    step = chain.start(feeds[INPUT_IDS], mask, feeds[TOKEN_TYPE_IDS])
    marks = [time.perf_counter() - start]
    for index in range(1, len(chain)):
        step = chain.advance(index, step.hidden, every_row, mask)
        marks.append(time.perf_counter() - start)
    return marks


def _time_shape(
    subject: Subject, one_graph: OneGraph | None, shape: tuple[int, int], seconds: float
) -> Timing:
    feeds = _feeds(subject, *shape)
    chain = subject.chain
    unasked = chain.presenting((len(chain) - 1,))
    timers = [lambda: until_exits(chain, feeds), lambda: until_exits(unasked, feeds)]
    if one_graph is not None:
        timers.append(lambda: [_seconds(lambda: one_graph.run(feeds))])
    asked_s, unasked_s, *graph_s = _medians_s(timers, seconds)
    return Timing(
        *shape,
        until_exit_ms=tuple(1e3 * s for s in asked_s),
        unasked_ms=1e3 * unasked_s[-1],
        one_graph_ms=1e3 * graph_s[0][-1] if graph_s else None,
    )


def _medians_s(timers: list[Callable[[], list[float]]], seconds: float) -> list[list[float]]:
    """Run all in turns until the time is up, and return each one's medians."""
    times: list[list[list[float]]] = [[] for _ in timers]
    for timer in timers * _WARM_UP:
        timer()
    end = time.perf_counter() + seconds
    while len(times[0]) < _FEWEST or time.perf_counter() < end:
        for runs, timer in zip(times, timers, strict=True):
            runs.append(timer())
    return [np.median(runs, axis=0).tolist() for runs in times]


def _seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _feeds(subject: Subject, rows: int, tokens: int) -> _Feeds:
    generator = np.random.default_rng(0)
    ids, mask = random_ids(generator, subject.vocabulary, np.full(rows, tokens))
    return {INPUT_IDS: ids, ATTENTION_MASK: mask, TOKEN_TYPE_IDS: np.zeros_like(ids)}
