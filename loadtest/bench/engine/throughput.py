"""Bars 3 and 4: how much more an engine answers when its requests leave early."""

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.engine.bars import Bar, Report, at_least
from loadtest.bench.engine.settings import Budget
from loadtest.bench.engine_driver import Driver, driving, rows_of
from loadtest.bench.inputs import Ids, random_texts
from loadtest.bench.loaded_bundle import LoadedBundle
from loadtest.bench.whole_model import answer_all
from loadtest.simulator.exit_mixes import ExitMix, deebert_like, uniform
from loadtest.simulator.lengths import sst2_lengths
from serve.engine.scheduler import BatchLimits

_WHAT = "throughput under full load / whole-model dynamic batching"
_SHARE = 0.95
# Of the layers: the mean exit on DeeBERT's easy tasks.
_EARLY = 0.4


def throughput(loaded: LoadedBundle, budget: Budget, report: Report) -> list[Bar]:
    """Answer the same requests in turns by the engine and by batches of the whole model.

    The time is from the first request to the last answer, so the engine's deepest rows, which run
    in ever smaller batches at the end, count against it. Each contender's fastest turn counts:
    other work can slow the machine by a third for the time of a turn.
    """
    lengths = sst2_lengths(budget.requests, seed=1)
    texts = random_texts(lengths, loaded.vocabulary)
    depth = loaded.depth
    mixes = [uniform(2, depth, depth), deebert_like(_EARLY * depth, depth)]
    layers = [mix.assign(lengths) for mix in mixes]
    whole_s: list[float] = []
    ours_s: list[tuple[float, ...]] = []
    with driving(loaded.chain, loaded.shape) as driver:
        for turn in range(budget.rounds + 1):
            report(f"{loaded.precision}: throughput, turn {turn} of {budget.rounds}")
            # The first turn warms up, on a part of the requests.
            part = slice(None) if turn else slice(0, budget.in_flight)
            whole_s.append(_whole_model_s(loaded, texts[part], budget.in_flight))
            ours_s.append(tuple(_ours_s(driver, texts[part], at[part], budget) for at in layers))
    fastest_s = np.min(ours_s[1:], axis=0)
    return [
        _bar(loaded, mix, min(whole_s[1:]) / float(best_s))
        for mix, best_s in zip(mixes, fastest_s, strict=True)
    ]


def _whole_model_s(loaded: LoadedBundle, texts: Sequence[Ids], in_flight: int) -> float:
    """Return the time of the faster setting of the one graph."""
    times_s = []
    for one_graph in loaded.one_graphs:
        began = perf_counter()
        answer_all(one_graph, texts, in_flight, BatchLimits(), loaded.shape.pad_id)
        times_s.append(perf_counter() - began)
    return min(times_s)


def _ours_s(
    driver: Driver, texts: Sequence[Ids], layers: NDArray[np.int64], budget: Budget
) -> float:
    return driver.run(rows_of(driver.shape, texts, layers.tolist()), budget.in_flight)


def _bar(loaded: LoadedBundle, mix: ExitMix, gain: float) -> Bar:
    case = f"{loaded.precision} {mix.name}, mean exit layer {mix.mean:.1f}"
    return at_least(_WHAT, case, gain, _SHARE * loaded.depth / mix.mean)
