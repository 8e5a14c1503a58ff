"""Bar 5: answers per second when the segments cost nothing."""

import time
from collections.abc import Sequence

import numpy as np

from loadtest.bench.engine.bars import Bar, Report, at_least
from loadtest.bench.engine.free_segments import FreeSegments
from loadtest.bench.engine.settings import Budget
from loadtest.bench.engine_driver import driving, rows_of
from loadtest.bench.inputs import Ids, random_texts
from loadtest.simulator.exit_mixes import uniform
from loadtest.simulator.lengths import sst2_lengths
from serve.engine.core import EngineCore
from serve.engine.row import Row
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.rules.traits import Traits

_WHAT = "answers with segments that cost nothing, 12 segments, 64 in flight"
_PER_SECOND = 20_000
_SEGMENTS = 12
_IN_FLIGHT = 64
_TURNS = 7


def bookkeeping(budget: Budget, report: Report) -> list[Bar]:
    """Time the core alone, and the engine with its thread, fed by another thread.

    Texts are as long as those of SST-2. In one case all rows run through every segment, in the
    other exits are uniform over layers 2 to 12. The fastest turn counts.
    """
    report("bookkeeping with segments that cost nothing")
    lengths = sst2_lengths(budget.bookkeeping_rows, seed=2)
    texts = random_texts(lengths, 1000)
    mixed = uniform(2, _SEGMENTS, _SEGMENTS).assign(lengths).tolist()
    layers = {"to the last segment": [_SEGMENTS] * len(texts), "exits uniform 2 to 12": mixed}
    bars: list[Bar] = []
    for case, wanted in layers.items():
        turns = [
            (_core_s(_rows(texts, wanted)), _engine_s(_rows(texts, wanted))) for _ in range(_TURNS)
        ]
        # Other work of the machine can slow it by a third for some seconds.
        rates = len(texts) / np.min(turns, axis=0)
        for part, rate in zip(("core", "engine with its thread"), rates, strict=True):
            bars.append(at_least(_WHAT, f"{part}, {case}", float(rate), _PER_SECOND, "answers/s"))
    return bars


def _rows(texts: Sequence[Ids], layers: Sequence[int]) -> list[Row]:
    return rows_of(_shape(), texts, layers)


def _shape() -> ModelShape:
    return ModelShape(Traits(tuple(range(1, _SEGMENTS + 1)), ("no", "yes")), (1.0,) * _SEGMENTS)


def _core_s(rows: Sequence[Row]) -> float:
    core = EngineCore(
        FreeSegments(_SEGMENTS, _IN_FLIGHT), _shape(), BatchLimits(), time.monotonic, lambda _: None
    )
    began = time.perf_counter()
    answered = sent = 0
    while answered < len(rows):
        new = rows[sent : answered + _IN_FLIGHT]
        sent += len(new)
        for row in new:
            row.admitted_s = time.monotonic()
        core.add(list(new))
        answered += len(core.step())
    return time.perf_counter() - began


def _engine_s(rows: Sequence[Row]) -> float:
    with driving(FreeSegments(_SEGMENTS, _IN_FLIGHT), _shape()) as driver:
        return driver.run(rows, _IN_FLIGHT)
