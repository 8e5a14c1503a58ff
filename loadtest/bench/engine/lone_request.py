"""Bar 6: what the engine adds to a request that is alone in it."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.engine.bars import Bar, at_most
from loadtest.bench.engine.loaded_bundle import Subject
from loadtest.bench.engine.settings import Budget
from loadtest.bench.engine_driver import driving
from loadtest.bench.rows import random_texts, row_of
from serve.rules import EntropyRule
from serve.runtime.cpu_runner import CpuRunner

_WHAT = "p50 of a lone request through the engine - bare segments"
_MOST_MS = 0.3
# The mean of SST-2.
_TOKENS = 25
_WARM_UP = 3


def lone_request(
    subject: Subject, budget: Budget, report: Callable[[str], None]
) -> tuple[list[Bar], dict[str, Any]]:
    """Run the same text through the bare segments and through the engine, in turns.

    From submission to outcome, by a rule that is evaluated at every exit and never satisfied. The
    bare segments are called one by one, in a loop that does nothing else; beside it stands what
    one call for all of them takes.
    """
    report(f"{subject.precision}: a lone request through the engine")
    text = random_texts([_TOKENS], subject.vocabulary)[0]
    times_s = []
    with driving(subject.chain, subject.shape) as driver:
        for _ in range(budget.lone_turns + _WARM_UP):
            bare_s = _bare_s(subject.chain, text[None])
            engine_s = driver.run([row_of(text, EntropyRule(threshold=0))], 1)
            times_s.append((bare_s, engine_s, _passing_s(subject.chain, text[None])))
    bare_ms, engine_ms, passing_ms = 1e3 * np.median(times_s[_WARM_UP:], axis=0)
    case = f"{subject.precision} 1 x {_TOKENS}"
    added = at_most(_WHAT, case, float(engine_ms - bare_ms), _MOST_MS, "ms")
    figures = {
        "bare_segments_ms": float(bare_ms),
        "engine_ms": float(engine_ms),
        "bare_in_passing_ms": float(passing_ms),
    }
    return [added], {"lone_request": figures}


def _bare_s(chain: CpuRunner, ids: NDArray[np.int64]) -> float:
    mask, types, every_row = np.ones_like(ids), np.zeros_like(ids), np.arange(len(ids))
    began = perf_counter()
    step = chain.start(ids, mask, types)
    for index in range(1, len(chain)):
        step = chain.advance(index, step.hidden, every_row, mask)
    return perf_counter() - began


def _passing_s(chain: CpuRunner, ids: NDArray[np.int64]) -> float:
    mask, types = np.ones_like(ids), np.zeros_like(ids)
    gaps = np.full(len(chain), np.inf, np.float32)
    gaps[-1] = 0
    began = perf_counter()
    chain.start(ids, mask, types, gaps)
    return perf_counter() - began
