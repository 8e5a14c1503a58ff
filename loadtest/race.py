"""The chain of segments against the model as one graph, in turns, within one run."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.manifest import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from serve.segments import SegmentChain

# A pool that has just worked may keep its threads spinning for some 40 ms.
_SETTLE_S = 0.06
# A core that has slept is slow at first, and its caches hold what the others left.
_WARM_UP_S = 0.01
_RUNS_PER_TURN = 3
_FEWEST_TURNS = 5

Feeds = dict[str, NDArray[np.int64]]  # each (rows, tokens)
Clock = Callable[[], float]


class Shape(NamedTuple):
    """A wave's size."""

    rows: int
    tokens: int


class Finding(NamedTuple):
    """What one shape took.

    Attributes:
        shape: rows and tokens.
        one_graph_ms: median time of the one graph, with whichever threading suits it better.
        segments_ms: median time of all segments, with the logits of every exit read.
        fp32_ms: the same of the fp32 segments; None if they are not beside another variant.
        exit_shares: per exit, the median share of a full run after which its logits are there.
    """

    shape: Shape
    one_graph_ms: float
    segments_ms: float
    fp32_ms: float | None
    exit_shares: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Time of the segments as a multiple of the one graph's."""
        return self.segments_ms / self.one_graph_ms


class OneGraph:
    """The whole model in one session."""

    def __init__(self, path: Path, options: ort.SessionOptions) -> None:
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]

    def run(self, feeds: Feeds) -> NDArray[np.float32]:
        """Return the last head's logits, (rows, labels); called as `serve.segments` calls."""
        logits: NDArray[np.float32]
        logits, *_ = self._session.run(self._outputs, {n: feeds[n] for n in self._inputs})
        return logits


class Contenders(NamedTuple):
    """What runs in turns.

    Attributes:
        one_graphs: the model as one graph, in the settings that may suit it; the best counts.
        chain: its segments.
        fp32: its fp32 segments, if `chain` is another variant.
        clock: in seconds.
    """

    one_graphs: Sequence[OneGraph]
    chain: SegmentChain
    fp32: SegmentChain | None
    clock: Clock


def race(contenders: Contenders, shape: Shape, vocabulary: int, budget_s: float) -> Finding:
    """Run all in turns until the time is up, and at least five turns each.

    Args:
        contenders: what to run.
        shape: of every run; nothing is padding.
        vocabulary: ids are drawn below this.
        budget_s: time for this shape.
    """
    feeds = feeds_of(shape, vocabulary)
    chains = [chain for chain in (contenders.chain, contenders.fp32) if chain]
    clock = contenders.clock
    timers = [partial(_time_chain, chain, feeds, clock) for chain in chains]
    timers += [partial(_time_one, one_graph, feeds, clock) for one_graph in contenders.one_graphs]
    times_s: list[list[list[float]]] = [[] for _ in timers]
    end = time.perf_counter() + budget_s
    while len(times_s[0]) < _FEWEST_TURNS * _RUNS_PER_TURN or time.perf_counter() < end:
        for runs, timer in zip(times_s, timers, strict=True):
            runs.extend(_turn(timer))
    exits_s = np.array(times_s[0])  # (runs, exits)
    shares = np.median(exits_s / exits_s[:, -1:], axis=0)
    medians_ms = [1e3 * float(np.median([run[-1] for run in runs])) for runs in times_s]
    return Finding(
        shape,
        one_graph_ms=min(medians_ms[len(chains) :]),
        segments_ms=medians_ms[0],
        fp32_ms=medians_ms[1] if contenders.fp32 else None,
        exit_shares=tuple(shares.tolist()),
    )


def feeds_of(shape: Shape, vocabulary: int) -> Feeds:
    """Return random ids, unmasked."""
    ids = np.random.default_rng(0).integers(0, vocabulary, shape)
    return {INPUT_IDS: ids, ATTENTION_MASK: np.ones_like(ids), TOKEN_TYPE_IDS: np.zeros_like(ids)}


def _turn(timed_run: Callable[[], list[float]]) -> list[list[float]]:
    time.sleep(_SETTLE_S)
    warm = time.perf_counter() + _WARM_UP_S
    timed_run()
    while time.perf_counter() < warm:
        timed_run()
    return [timed_run() for _ in range(_RUNS_PER_TURN)]


def _time_one(one_graph: OneGraph, feeds: Feeds, clock: Clock) -> list[float]:
    start = clock()
    one_graph.run(feeds)
    return [clock() - start]


def _time_chain(chain: SegmentChain, feeds: Feeds, clock: Clock) -> list[float]:
    """Return the seconds from the start until each exit's logits were there."""
    mask = feeds[ATTENTION_MASK]
    every_row = np.arange(len(mask))
    start = clock()
    step = chain.start(feeds[INPUT_IDS], mask, feeds[TOKEN_TYPE_IDS])
    marks_s = [clock() - start]
    for index in range(1, len(chain)):
        step = chain.advance(index, step.hidden, every_row, mask)
        marks_s.append(clock() - start)
    return marks_s
