"""Bars 3 and 4: how much more an engine answers whose requests leave early."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.engine.bars import Bar, at_least
from loadtest.bench.engine.exit_mixes import ExitMix, early, uniform
from loadtest.bench.engine.lengths import draw_lengths
from loadtest.bench.engine.loaded_bundle import Subject
from loadtest.bench.engine.settings import Budget
from loadtest.bench.engine_driver import Driver, driving
from loadtest.bench.rows import random_texts, rows_of
from loadtest.bench.whole_model import answer_all
from serve.engine.scheduler import BatchLimits

_WHAT = "throughput under full load / whole-model dynamic batching"
_SHARE = 0.95

Texts = list[NDArray[np.int64]]


def throughput(
    subject: Subject, budget: Budget, report: Callable[[str], None]
) -> tuple[list[Bar], dict[str, Any]]:
    """Answer the same requests in turns by the engine and by batches of the whole model.

    The time is that from the first request to the last answer, so the engine's deepest rows,
    which run in ever smaller batches at the end, count against it. Each contender's fastest turn
    counts: other tenants slow a machine by a third for as long as a turn takes, and no turn of
    the other is disturbed alike.
    """
    lengths = draw_lengths(budget.requests, seed=1)
    texts = random_texts(lengths, subject.vocabulary)
    mixes = [uniform(subject.depth), early(subject.depth)]
    layers = [mix.assign(lengths) for mix in mixes]
    whole_s: list[float] = []
    ours_s: list[tuple[float, ...]] = []
    with driving(subject.chain, subject.shape) as driver:
        for turn in range(budget.rounds + 1):
            report(f"{subject.precision}: throughput, turn {turn} of {budget.rounds}")
            # The first turn warms up, on a part of the requests.
            part = slice(None) if turn else slice(0, budget.in_flight)
            whole_s.append(_whole_model_s(subject, texts[part], budget.in_flight))
            ours_s.append(tuple(_ours_s(driver, texts[part], at[part], budget) for at in layers))
    del whole_s[0], ours_s[0]
    work = [float((at * lengths).sum() / lengths.sum()) for at in layers]
    taken = list(zip(mixes, zip(*ours_s, strict=True), work, strict=True))
    return [_bar(subject, mix, min(whole_s) / min(times_s)) for mix, times_s, _ in taken], {
        "throughput": {
            "requests": budget.requests,
            "mean_tokens": float(lengths.mean()),
            "in_flight": budget.in_flight,
            "whole_model_s": whole_s,
            "mixes": [_figures(mix, times_s, layer) for mix, times_s, layer in taken],
        }
    }


def _whole_model_s(subject: Subject, texts: Texts, in_flight: int) -> float:
    """Return the time of the faster setting of the one graph."""
    times_s = []
    for one_graph in subject.one_graphs:
        began = perf_counter()
        answer_all(one_graph, texts, in_flight, BatchLimits(), subject.shape.pad_id)
        times_s.append(perf_counter() - began)
    return min(times_s)


def _ours_s(driver: Driver, texts: Texts, layers: NDArray[np.int64], budget: Budget) -> float:
    return driver.run(rows_of(texts, layers.tolist()), budget.in_flight)


def _bar(subject: Subject, mix: ExitMix, gain: float) -> Bar:
    case = f"{subject.precision} {mix.name}, mean exit layer {mix.mean_layer:.1f}"
    bound = _SHARE * mix.depth / mix.mean_layer
    return at_least(_WHAT, case, gain, bound)


def _figures(mix: ExitMix, times_s: Sequence[float], work: float) -> dict[str, Any]:
    return {
        "mix": mix.name,
        "shares": list(mix.shares),
        "mean_exit_layer": mix.mean_layer,
        "mean_exit_layer_by_tokens": work,
        "layers_saved_allow": mix.depth / mix.mean_layer,
        "engine_s": list(times_s),
    }
