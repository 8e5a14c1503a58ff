"""Bars 1 and 2: what cutting the model costs, and what a lone request saves that leaves early."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.engine.bars import Bar, at_most
from loadtest.bench.engine.lengths import draw_lengths
from loadtest.bench.engine.loaded_bundle import Subject
from loadtest.bench.engine.settings import Budget
from loadtest.bench.engine_driver import Driver, driving
from loadtest.bench.rows import random_texts, rows_of
from loadtest.bench.segments.segment_timing import Contenders, Rounds, race

_CUT = "segments at full depth / one graph"
_LEAVE = "a lone request that leaves at layer k / at the last"
_ROUNDING = 0.03
_REST_EVERY = 5

Measured = tuple[list[Bar], dict[str, Any]]
Report = Callable[[str], None]


def price_of_cutting(subject: Subject, budget: Budget, report: Report) -> Measured:
    """Run the segments and the one graph in turns, shape by shape.

    Judged against the one graph with its last head alone, so that these two have most of the time.
    Beside it stand the segments with every exit asked, against the one graph with every head.
    """
    rounds = Rounds(("segments", "one_graph"), _REST_EVERY, budget.shape_turns)
    bars: list[Bar] = []
    figures: list[dict[str, Any]] = []
    for shape in budget.shapes:
        case = f"{shape.rows} x {shape.tokens}"
        report(f"{subject.precision}: segments against one graph, {case}")
        found = race(
            Contenders(subject.one_graphs, subject.every_head, subject.chain, None, subject.clock),
            shape,
            subject.vocabulary,
            budget.shape_s,
            rounds,
        )
        bars.append(at_most(_CUT, f"{subject.precision} {case}", found.ratio, 1.05))
        figures.append(
            {
                "rows": shape.rows,
                "tokens": shape.tokens,
                "turns": found.turns,
                "one_graph_ms": found.one_graph_ms,
                "segments_ms": found.segments_ms,
                "asked_ms": found.asked_ms,
                "by_host_ms": found.by_host_ms,
                "ratio": found.ratio,
                "asked_ratio_to_one_graph_with_every_head": found.price_of_cutting,
                "exit_shares": list(found.exit_shares),
            }
        )
    return bars, {"price_of_cutting": figures}


def leaving_early(subject: Subject, budget: Budget, report: Report) -> Measured:
    """Send lone requests that leave at layer 1, 2, ... through the engine, in turns.

    From submission to outcome, the engine's thread included, each compared with the full run of
    its turn; all of it once before, as in a server that has seen such lengths. One bar for texts
    as long as those of SST-2, another text each turn, and one per length of the lone shapes, each
    for the layer that is furthest from its share of the layers.
    """
    bars: list[Bar] = []
    figures: list[dict[str, Any]] = []
    exits = subject.shape.exits
    with driving(subject.chain, subject.shape) as driver:
        for named, lengths in _lengths(budget, budget.leave_turns).items():
            report(f"{subject.precision}: leaving early, {named}")
            texts = random_texts(lengths, subject.vocabulary)
            _turns(driver, texts, exits, 0.0)
            times_s = _turns(driver, texts, exits, budget.leave_s)
            shares = np.median(times_s / times_s[:, -1:], axis=0)
            bars.append(_worst(subject, named, shares))
            found = {"texts": named, "turns": len(times_s), "exit_shares": shares.tolist()}
            figures.append(found)
    return bars, {"leaving_early": figures}


def _lengths(budget: Budget, turns: int) -> dict[str, list[int]]:
    """Return the tokens of each turn's text, by what texts are called of such lengths."""
    lone = sorted({shape.tokens for shape in budget.shapes if shape.rows == 1})
    drawn: list[int] = draw_lengths(turns, seed=0).tolist()
    return {"1 x SST-2": drawn} | {f"1 x {tokens}": [tokens] * turns for tokens in lone}


def _turns(
    driver: Driver, texts: Sequence[NDArray[np.int64]], exits: Sequence[int], least_s: float
) -> NDArray[np.float64]:
    """Return (turns, exits) seconds of a turn with each text, and more until some time is over."""
    generator, began = np.random.default_rng(0), perf_counter()
    taken: list[list[float]] = []
    while len(taken) < len(texts) or perf_counter() < began + least_s:
        text, order = texts[len(taken) % len(texts)], generator.permutation(len(exits))
        taken.append(_turn(driver, text, exits, order.tolist()))
    return np.array(taken)


def _turn(
    driver: Driver, text: NDArray[np.int64], exits: Sequence[int], order: Sequence[int]
) -> list[float]:
    """Return the seconds until the exits' answers, by index, sent in the order given.

    A run finds in the caches the weights of those segments that ran before.
    """
    times_s = [0.0] * len(exits)
    for index in order:
        times_s[index] = driver.run(rows_of([text], [exits[index]]), 1)
    return times_s


def _worst(subject: Subject, named: str, shares: NDArray[np.float64]) -> Bar:
    due = np.array(subject.shape.exits) / subject.depth
    worst = int(np.argmax(shares - due))
    case = f"{subject.precision} {named}, furthest off at layer {subject.shape.exits[worst]}"
    return at_most(_LEAVE, case, float(shares[worst]), float(due[worst]) + _ROUNDING)
