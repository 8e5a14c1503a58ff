"""Bars 1, 2 and 6: what cutting costs, and what a lone request saves and pays in the engine."""

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.chain import until_exits_s
from loadtest.bench.engine.bars import Bar, Report, at_most
from loadtest.bench.engine.settings import Budget
from loadtest.bench.engine_driver import Driver, driving, row_of, rows_of
from loadtest.bench.inputs import Ids, padded, random_texts
from loadtest.bench.loaded_bundle import LoadedBundle
from loadtest.bench.segments.segment_timing import cutting_ratio
from loadtest.simulator.lengths import sst2_lengths
from serve.rules import EntropyRule

_CUT = "segments at full depth / one graph"
_LEAVE = "a lone request that leaves at layer k / at the last"
_ROUNDING = 0.03
_ADDED = "p50 of a lone request through the engine - bare segments"
_MOST_MS = 0.3
# The mean of SST-2.
_TOKENS = 25
_LONE_WARM_UP = 3


def price_of_cutting(loaded: LoadedBundle, budget: Budget, report: Report) -> list[Bar]:
    """Run the segments and the one graph in turns, shape by shape."""
    bars: list[Bar] = []
    for shape in budget.shapes:
        report(f"{loaded.precision}: segments against one graph, {shape}")
        ratio = cutting_ratio(loaded, shape, budget.shape_s, budget.shape_turns)
        bars.append(at_most(_CUT, f"{loaded.precision} {shape}", ratio, 1.05))
    return bars


def leaving_early(loaded: LoadedBundle, budget: Budget, report: Report) -> list[Bar]:
    """Send lone requests that leave at layer 1, 2, ... through the engine, in turns.

    Times are from submission to outcome, each compared with the full run of its turn. A first
    pass over all texts warms up. There is one bar for texts as long as those of SST-2, another
    text each turn, and one for each length of the lone shapes. A bar is for the layer that is
    furthest from its share of the layers.
    """
    bars: list[Bar] = []
    exits = loaded.shape.exits
    with driving(loaded.chain, loaded.shape) as driver:
        for named, lengths in _lengths(budget, budget.leave_turns).items():
            report(f"{loaded.precision}: leaving early, {named}")
            texts = random_texts(lengths, loaded.vocabulary)
            _turns(driver, texts, exits, 0.0)
            times_s = _turns(driver, texts, exits, budget.leave_s)
            shares = np.median(times_s / times_s[:, -1:], axis=0)
            bars.append(_worst(loaded, named, shares))
    return bars


def lone_request(loaded: LoadedBundle, budget: Budget, report: Report) -> list[Bar]:
    """Run the same text through the bare segments and through the engine, in turns.

    The engine's time is from submission to outcome, under a rule that is evaluated at every exit
    and never satisfied. The bare segments are called one by one.
    """
    report(f"{loaded.precision}: a lone request through the engine")
    text = random_texts([_TOKENS], loaded.vocabulary)[0]
    inputs, chain = padded([text], loaded.shape.pad_id), loaded.chain
    times_s = []
    with driving(chain, loaded.shape) as driver:
        for _ in range(budget.lone_turns + _LONE_WARM_UP):
            bare_s = until_exits_s(chain, inputs)[-1]
            engine_s = driver.run([row_of(loaded.shape, text, EntropyRule(threshold=0))], 1)
            times_s.append((bare_s, engine_s))
    bare_ms, engine_ms = 1e3 * np.median(times_s[_LONE_WARM_UP:], axis=0)
    case = f"{loaded.precision} 1 x {_TOKENS}"
    return [at_most(_ADDED, case, float(engine_ms - bare_ms), _MOST_MS, "ms")]


def _lengths(budget: Budget, turns: int) -> dict[str, list[int]]:
    """Return the tokens of each turn's text, by the name of the lengths."""
    lone = sorted({shape.tokens for shape in budget.shapes if shape.rows == 1})
    drawn: list[int] = sst2_lengths(turns, seed=0).tolist()
    return {"1 x SST-2": drawn} | {f"1 x {tokens}": [tokens] * turns for tokens in lone}


def _turns(
    driver: Driver, texts: Sequence[Ids], exits: Sequence[int], least_s: float
) -> NDArray[np.float64]:
    """Return (turns, exits) seconds: a turn with each text, and more until `least_s` is over."""
    generator, began = np.random.default_rng(0), perf_counter()
    taken: list[list[float]] = []
    while len(taken) < len(texts) or perf_counter() < began + least_s:
        text, order = texts[len(taken) % len(texts)], generator.permutation(len(exits))
        taken.append(_turn(driver, text, exits, order.tolist()))
    return np.array(taken)


def _turn(driver: Driver, text: Ids, exits: Sequence[int], order: Sequence[int]) -> list[float]:
    """Return the seconds until each exit's answer; requests are sent in the order given.

    The order matters, because a run finds in the caches the weights of the segments before it.
    """
    times_s = [0.0] * len(exits)
    for index in order:
        times_s[index] = driver.run(rows_of(driver.shape, [text], [exits[index]]), 1)
    return times_s


def _worst(loaded: LoadedBundle, named: str, shares: NDArray[np.float64]) -> Bar:
    due = np.array(loaded.shape.exits) / loaded.depth
    worst = int(np.argmax(shares - due))
    case = f"{loaded.precision} {named}, furthest off at layer {loaded.shape.exits[worst]}"
    return at_most(_LEAVE, case, float(shares[worst]), float(due[worst]) + _ROUNDING)
