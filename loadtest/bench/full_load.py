"""Rows per second on a GPU, with rows always waiting: the engine against the whole model."""

from collections.abc import Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from loadtest.bench.engine_driver import driving, rows_of
from loadtest.bench.inputs import random_texts
from loadtest.bench.whole_model import Answer, answer_all
from loadtest.simulator.traffic import read_mix, sst2_lengths
from serve.engine.runner import ModelRunner
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape

Line: TypeAlias = dict[str, Any]

SHORT, LONG = 25, 115  # tokens; short ones as in SST-2, whose mean that is
_FLIGHT = 3  # batches that wait
_FLIGHTS = 4  # are answered in a turn
_TURNS = 2  # the faster one counts


def rates(
    models: Sequence[tuple[ModelRunner, ModelShape]],
    whole: Answer | None,
    vocabulary: int,
    max_tokens: int,
    limits: BatchLimits,
    mean: int,
) -> Iterator[Line]:
    """Yield rows per second of each mix of exits.

    Args:
        models: the same model with more and fewer exits; the first has them all.
        whole: runs a batch through the whole model; None without.
        vocabulary: number of token ids.
        max_tokens: of a text.
        limits: on a batch.
        mean: tokens of a text, `SHORT` or `LONG`.
    """
    flight = max(1, _FLIGHT * limits.max_tokens // mean)
    num = _FLIGHTS * flight
    lengths = np.minimum(sst2_lengths(num, seed=1) if mean == SHORT else [mean] * num, max_tokens)
    texts, base = random_texts(lengths, vocabulary), None
    if whole:
        answer = partial(answer_all, whole, texts, flight, limits, models[0][1].pad_id)
        base = num / min(_seconds(answer) for _ in range(_TURNS))
    depth = models[0][1].exits[-1]
    for name in (f"deebert:{0.4 * depth:g}", f"fixed:{depth // 2}", "never"):
        line: Line = {"tokens": mean, "in a batch": limits.max_tokens, "exits": name, "whole": base}
        wanted = read_mix(name, depth).assign(lengths)
        for runner, shape in models:
            exits = np.array(shape.exits)
            layers = exits[np.searchsorted(exits, wanted)].tolist()
            with driving(runner, shape, limits) as driver:
                took_s = [driver.run(rows_of(shape, texts, layers), flight) for _ in range(_TURNS)]
            line[f"{len(exits)} exits"] = num / min(took_s)
        yield line


def _seconds(run: Any) -> float:
    began = perf_counter()
    run()
    return perf_counter() - began
