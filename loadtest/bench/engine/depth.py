"""Bars 1 and 2: what cutting the model costs, and what a lone request saves by leaving early."""

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.engine.bars import Bar, Report, at_most
from loadtest.bench.engine.settings import Budget
from loadtest.bench.engine_driver import Driver, driving, rows_of
from loadtest.bench.inputs import Ids, random_texts
from loadtest.bench.loaded_bundle import LoadedBundle
from loadtest.bench.segments.segment_timing import cutting_ratio
from loadtest.simulator.lengths import sst2_lengths

_CUT = "segments at full depth / one graph"
_LEAVE = "a lone request that leaves at layer k / at the last"
_ROUNDING = 0.03


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
