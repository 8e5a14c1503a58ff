"""Time the segments and the one graph in turns, within one run.

Times are compared turn by turn, so a slow period of the machine slows both sides of a ratio.
"""

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.chain import Clock, run_to_exit_s, until_exits_s
from loadtest.bench.inputs import Inputs, Shape, random_inputs
from loadtest.bench.loaded_bundle import LoadedBundle
from loadtest.bench.one_graph_session import OneGraph
from serve.runtime.cpu_runner import CpuRunner

# A pool's threads may spin for some 40 ms after a run, or longer if they do not get the cores.
_QUIET_S = 0.01
_QUIET_SHARE = 0.2
_SETTLE_AT_MOST_S = 0.5
# A core that has slept is slow at first, and its caches hold other weights.
_WARM_UP_S = 0.025
_TURN_S = 0.01
_FEWEST_RUNS = 3
_FEWEST_TURNS = 7

Timer = Callable[[], list[float]]
# Seconds until each exit's logits, (runs, exits); (runs, 1) of a contender without exits.
Turn = NDArray[np.float64]


class SegmentTiming(NamedTuple):
    """What one shape took; medians over turns."""

    shape: Shape
    one_graph_ms: float  # the one graph, with the setting that suits it best
    segments_ms: float  # all segments in one call, for rows that leave at the last exit
    each_segment_ms: float  # all segments with one call a segment, every head included
    # `segments_ms` of the fp32 variant, if it is measured beside another.
    fp32_segments_ms: float | None
    ratio: float  # `segments_ms` over `one_graph_ms`, the median of the turns' ratios
    # Per exit, the share of a full run after which its logits are there.
    exit_shares: tuple[float, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the figures as JSON data."""
        return {**self.shape._asdict(), **self._asdict()} | {"shape": str(self.shape)}


def time_segments(
    loaded: LoadedBundle, shape: Shape, budget_s: float, fp32: CpuRunner | None = None
) -> SegmentTiming:
    """Run all contenders in turns until the time is over.

    Args:
        loaded: the segments and the one graph.
        shape: of every run, without padding.
        budget_s: time for this shape.
        fp32: the fp32 segments, if `loaded` is another variant.
    """
    contenders = _contenders(loaded, fp32, random_inputs(shape, loaded.vocabulary))
    return _summary(shape, _in_turns(contenders, budget_s, _FEWEST_TURNS))


def cutting_ratio(loaded: LoadedBundle, shape: Shape, budget_s: float, fewest: int) -> float:
    """Return the time of all segments over the one graph's, of so many turns at least."""
    contenders = _contenders(loaded, None, random_inputs(shape, loaded.vocabulary))
    compared = {name: contenders[name] for name in ("segments", "one_graph")}
    full_s = _full_s(_in_turns(compared, budget_s, fewest))
    return float(np.median(full_s["segments"] / full_s["one_graph"]))


def _in_turns(
    contenders: dict[str, list[Timer]], budget_s: float, fewest: int
) -> dict[str, list[list[Turn]]]:
    """Return the turns of each contender in each of its settings."""
    draw = random.Random(0)
    timers = [timer for same in contenders.values() for timer in same]
    turns: dict[Timer, list[Turn]] = {timer: [] for timer in timers}
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end or len(turns[timers[0]]) < fewest:
        # In random order, so that no contender always follows the same other one.
        for timer in draw.sample(timers, len(timers)):
            turns[timer].append(_turn(timer))
    return {name: [turns[timer] for timer in same] for name, same in contenders.items()}


def _contenders(
    loaded: LoadedBundle, fp32: CpuRunner | None, inputs: Inputs
) -> dict[str, list[Timer]]:
    """Return what is timed, by name, with one timer for each setting."""
    chain, clock, generator = loaded.chain, loaded.clock, np.random.default_rng(0)
    timers: dict[str, list[Timer]] = {
        "segments": [partial(_time_to_last, chain, inputs, clock)],
        "leaving": [partial(_time_leaving, chain, inputs, clock, generator)],
        "each_segment": [partial(until_exits_s, chain, inputs, clock)],
        "one_graph": [partial(_time_graph, graph, inputs, clock) for graph in loaded.one_graphs],
    }
    return timers | ({"fp32": [partial(_time_to_last, fp32, inputs, clock)]} if fp32 else {})


def _full_s(turns: dict[str, list[list[Turn]]]) -> dict[str, NDArray[np.float64]]:
    """Return (turns,) the seconds of each contender, in the setting that suits it best."""
    full_s = {}
    for name, settings in turns.items():
        each = [np.array([np.median(turn[:, -1]) for turn in taken]) for taken in settings]
        full_s[name] = min(each, key=lambda times_s: float(np.median(times_s)))
    return full_s


def _summary(shape: Shape, turns: dict[str, list[list[Turn]]]) -> SegmentTiming:
    """Sum up the turns of each contender in each of its settings."""
    full_s = _full_s(turns)
    ms = {name: 1e3 * float(np.median(times_s)) for name, times_s in full_s.items()}
    runs_s = np.concatenate(turns["leaving"][0])
    return SegmentTiming(
        shape,
        one_graph_ms=ms["one_graph"],
        segments_ms=ms["segments"],
        each_segment_ms=ms["each_segment"],
        fp32_segments_ms=ms.get("fp32"),
        ratio=float(np.median(full_s["segments"] / full_s["one_graph"])),
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
    """Wait until this process's threads no longer work."""
    end = time.perf_counter() + _SETTLE_AT_MOST_S
    while time.perf_counter() < end:
        before_s = time.process_time()
        time.sleep(_QUIET_S)
        if time.process_time() - before_s < _QUIET_SHARE * _QUIET_S:
            return


def _time_graph(one_graph: OneGraph, inputs: Inputs, clock: Clock) -> list[float]:
    start = clock()
    one_graph.run(inputs)
    return [clock() - start]


def _time_to_last(chain: CpuRunner, inputs: Inputs, clock: Clock) -> list[float]:
    return [run_to_exit_s(chain, inputs, len(chain) - 1, clock)]


def _time_leaving(
    chain: CpuRunner, inputs: Inputs, clock: Clock, generator: np.random.Generator
) -> list[float]:
    """Return the seconds that rows take which leave at the first exit, the second, ...

    In random order, because a run finds in the caches the weights of the segments before it.
    """
    times_s = [0.0] * len(chain)
    for last in generator.permutation(len(chain)).tolist():
        times_s[last] = run_to_exit_s(chain, inputs, last, clock)
    return times_s
