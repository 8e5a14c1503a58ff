"""The chain of segments against the model as one graph, in turns, within one run.

Times are compared turn by turn, so that what slows the machine for a while slows both.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.inputs import Feeds, Shape, feeds_of
from loadtest.bench.one_graph_session import OneGraph
from serve.bundle.manifest import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from serve.engine.runner import ASKED, Gaps
from serve.runtime.cpu_runner import CpuRunner

# A pool that has just worked may keep its threads spinning for some 40 ms, or longer where they
# do not get the cores.
_QUIET_S = 0.01
_QUIET_SHARE = 0.2
_SETTLE_AT_MOST_S = 0.5
# A core that has slept is slow at first, and its caches hold what the others left: some twenty
# runs of a millisecond.
_WARM_UP_S = 0.025
_TURN_S = 0.01
_FEWEST_RUNS = 3

Clock = Callable[[], float]
Timer = Callable[[], list[float]]
# Seconds, (runs, exits): until each exit's logits were there; of what has none, (runs, 1).
Turn = NDArray[np.float64]


class Rounds(NamedTuple):
    """How often what takes turns.

    Attributes:
        goals: what is timed in every round: what the goals are about.
        rest_every: in every so many rounds the rest is, too.
        fewest: so many rounds, though the time be up.
    """

    goals: Sequence[str] = ("segments", "leaving", "one_graph")
    rest_every: int = 3
    fewest: int = 7


_USUAL = Rounds()


class Finding(NamedTuple):
    """What one shape took.

    Attributes:
        shape: rows and tokens.
        turns: that the segments and the one graph have taken.
        one_graph_ms: median time of the one graph with its last head alone, with whichever
            threading suits it better.
        every_head_ms: the same with every head, as the segments have.
        segments_ms: median time of all segments for rows that are to leave at the last exit; those
            before it are not asked. As the one graph, after others of its kind: where the last
            cache is shared with strangers, what has not run for a millisecond must be fetched anew.
        asked_ms: the same with every exit asked: of a row that is alone in passing, as when it
            surely stays at each (`serve.engine.runner.PassingRunner`), of several by the host.
        by_host_ms: the same with every exit asked by the host, one call each.
        fp32_ms: as `segments_ms`, of the fp32 segments; None if they are not beside another
            variant.
        ratio: time of the segments as a multiple of the one graph's with its last head alone, the
            median over all turns.
        price_of_cutting: the same of every exit asked, and of the one graph with every head.
        exit_shares: per exit, the median share of a full run after which its logits are there; runs
            to all exits take turns.
    """

    shape: Shape
    turns: int
    one_graph_ms: float
    every_head_ms: float
    segments_ms: float
    asked_ms: float
    by_host_ms: float
    fp32_ms: float | None
    ratio: float
    price_of_cutting: float
    exit_shares: tuple[float, ...]


class Contenders(NamedTuple):
    """What runs in turns.

    Attributes:
        one_graphs: the model with its last head alone as one graph, in the settings that may suit
            it; the best counts.
        every_head: the same with every head.
        chain: its segments.
        fp32: its fp32 segments, if `chain` is another variant.
        clock: in seconds.
    """

    one_graphs: Sequence[OneGraph]
    every_head: Sequence[OneGraph]
    chain: CpuRunner
    fp32: CpuRunner | None
    clock: Clock


def race(
    contenders: Contenders,
    shape: Shape,
    vocabulary: int,
    budget_s: float,
    rounds: Rounds = _USUAL,
) -> Finding:
    """Run all in turns until the time is up, and some turns at least.

    Args:
        contenders: what to run.
        shape: of every run; nothing is padding.
        vocabulary: ids are drawn below this.
        budget_s: time for this shape.
        rounds: of turns.
    """
    feeds, clock = feeds_of(shape, vocabulary), contenders.clock
    generator = np.random.default_rng(0)
    by_host: Timer = partial(_time_chain, contenders.chain, feeds, clock)
    asked: Timer = partial(_time_asked, contenders.chain, feeds, clock)
    timers: dict[str, list[Timer]] = {
        "segments": [partial(_time_unasked, contenders.chain, feeds, clock)],
        "leaving": [partial(_time_leaving, contenders.chain, feeds, clock, generator)],
        "asked": [asked if shape.rows == 1 else by_host],
        "by_host": [by_host],
        "one_graph": [partial(_time_one, graph, feeds, clock) for graph in contenders.one_graphs],
        "every_head": [partial(_time_one, graph, feeds, clock) for graph in contenders.every_head],
    }
    if contenders.fp32:
        timers["fp32"] = [partial(_time_unasked, contenders.fp32, feeds, clock)]
    turns: dict[Timer, list[Turn]] = {timer: [] for same in timers.values() for timer in same}
    goals = {timer for name in rounds.goals for timer in timers[name]}
    done, end = 0, time.perf_counter() + budget_s
    while time.perf_counter() < end or done < rounds.fewest:
        for timer in _shuffled(list(turns), generator):
            if timer in goals or done % rounds.rest_every == 0:
                turns[timer].append(_turn(timer))
        done += 1
    return _finding(shape, {name: [turns[t] for t in same] for name, same in timers.items()})


def _shuffled(timers: Sequence[Timer], generator: np.random.Generator) -> list[Timer]:
    """Return them in random order: none comes always after the same other."""
    return [timers[index] for index in generator.permutation(len(timers))]


def _finding(shape: Shape, turns: dict[str, list[list[Turn]]]) -> Finding:
    """Return what came of turns: of each contender, in each of its settings."""
    full_s: dict[str, NDArray[np.float64]] = {}  # (turns,) in the setting that suits it best
    for name, settings in turns.items():
        each = [np.array([np.median(turn[:, -1]) for turn in taken]) for taken in settings]
        full_s[name] = min(each, key=lambda times_s: float(np.median(times_s)))
    ms = {name: 1e3 * float(np.median(times_s)) for name, times_s in full_s.items()}
    runs_s = np.concatenate(turns["leaving"][0])
    return Finding(
        shape,
        turns=len(full_s["segments"]),
        one_graph_ms=ms["one_graph"],
        every_head_ms=ms["every_head"],
        segments_ms=ms["segments"],
        asked_ms=ms["asked"],
        by_host_ms=ms["by_host"],
        fp32_ms=ms.get("fp32"),
        ratio=float(np.median(full_s["segments"] / full_s["one_graph"])),
        price_of_cutting=float(np.median(full_s["asked"] / full_s["every_head"])),
        exit_shares=tuple(np.median(runs_s / runs_s[:, -1:], axis=0).tolist()),
    )


def _turn(timed_run: Timer) -> Turn:
    _settle()
    warm = time.perf_counter() + _WARM_UP_S
    timed_run()
    while time.perf_counter() < warm:
        timed_run()
    runs, end = list[list[float]](), time.perf_counter() + _TURN_S
    while time.perf_counter() < end or len(runs) < _FEWEST_RUNS:
        runs.append(timed_run())
    return np.array(runs)


def _settle() -> None:
    """Wait until no thread of this process works any more."""
    end = time.perf_counter() + _SETTLE_AT_MOST_S
    while time.perf_counter() < end:
        before_s = time.process_time()
        time.sleep(_QUIET_S)
        if time.process_time() - before_s < _QUIET_SHARE * _QUIET_S:
            return


def _time_one(one_graph: OneGraph, feeds: Feeds, clock: Clock) -> list[float]:
    start = clock()
    one_graph.run(feeds)
    return [clock() - start]


def _time_unasked(chain: CpuRunner, feeds: Feeds, clock: Clock) -> list[float]:
    """Return the seconds that rows take which are to leave at the last exit."""
    gaps = np.full(len(chain), np.inf, np.float32)
    gaps[-1] = 0
    return [_time_passing(chain, feeds, gaps, clock)]


def _time_leaving(
    chain: CpuRunner, feeds: Feeds, clock: Clock, generator: np.random.Generator
) -> list[float]:
    """Return the seconds that rows take which are to leave at the first exit, the second, ...

    In random order: a run finds in the caches the weights of those segments that ran before.
    """
    times_s = [0.0] * len(chain)
    for last in generator.permutation(len(chain)).tolist():
        gaps = np.where(np.arange(len(chain)) < last, np.inf, 0).astype(np.float32)
        times_s[last] = _time_passing(chain, feeds, gaps, clock)
    return times_s


def _time_asked(chain: CpuRunner, feeds: Feeds, clock: Clock) -> list[float]:
    """Return the seconds that a row takes which stays at every exit."""
    gaps = np.full(len(chain), ASKED)
    gaps[-1] = 0
    return [_time_passing(chain, feeds, gaps, clock)]


def _time_passing(chain: CpuRunner, feeds: Feeds, gaps: Gaps, clock: Clock) -> float:
    start = clock()
    chain.start(feeds[INPUT_IDS], feeds[ATTENTION_MASK], feeds[TOKEN_TYPE_IDS], gaps)
    return clock() - start


def _time_chain(chain: CpuRunner, feeds: Feeds, clock: Clock) -> list[float]:
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
