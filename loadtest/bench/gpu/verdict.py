"""From what batch on, and up to what layer, does leaving pay?"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from loadtest.bench.inputs import Shape

Line = dict[str, Any]


class Payoff(NamedTuple):
    """One set of active exits at one shape."""

    shape: Shape  # of the batch
    active: tuple[int, ...]  # exit layers
    # The last of them, the model's own end left out, at which leaving is sooner than the best
    # whole model; 0 if there is none.
    layer: int
    until_ms: tuple[float, ...]  # until each exit
    best: str  # the fastest whole model
    best_ms: float  # its time


def verdict(document: Line) -> Line:
    """Return the table and the sentences, from a document that may lack any part."""
    steps = document.get("steps", {})
    best = _best(steps.get("baselines", {}).get("ms", []))
    where = "this GPU" if document.get("device") == "cuda" else "the CPU provider"
    found = _payoffs(steps.get("subsets", {}).get("ms", []), best)
    rates = steps.get("throughput", {}).get("rows_per_s", [])
    sentence = _sentence(f"on {where}", found) + _saturated(rates)
    return {"table": [_line(each) for each in found], "sentence": sentence}


def _best(lines: Iterable[Line]) -> Mapping[Shape, tuple[float, str]]:
    """Return the fastest whole model of each shape."""
    found: dict[Shape, tuple[float, str]] = {}
    for line in lines:
        shape = Shape(line["rows"], line["tokens"])
        contender = (line["ms"], line["contender"])
        found[shape] = min(contender, found.get(shape, contender))
    return found


def _payoffs(lines: Iterable[Line], best: Mapping[Shape, tuple[float, str]]) -> list[Payoff]:
    """Return those of the set of exits that pays most, small batches first."""
    sets: dict[tuple[int, ...], list[Payoff]] = {}
    for line in lines:
        shape, active = Shape(line["rows"], line["tokens"]), tuple(line["active"])
        if shape not in best:
            continue
        best_ms, name = best[shape]
        inner = list(zip(active[:-1], line["until_ms"], strict=False))
        layer = max((layer for layer, ms in inner if ms < best_ms), default=0)
        each = Payoff(shape, active, layer, tuple(line["until_ms"]), name, best_ms)
        sets.setdefault(active, []).append(each)
    for found in sets.values():
        found.sort(key=lambda each: each.shape.rows * each.shape.tokens)
    return max(sets.values(), key=_merit, default=[])


def _merit(found: list[Payoff]) -> tuple[int, int, int]:
    """Order sets: pays on more of the largest batches, then up to a deeper layer."""
    paying = _paying(found)
    lowest = min((each.layer for each in paying), default=0)
    return len(paying), lowest, sum(each.layer for each in found)


def _paying(found: list[Payoff]) -> list[Payoff]:
    """Return the largest shapes, from the first on from which leaving pays at all of them."""
    start = len(found)
    while start and found[start - 1].layer:
        start -= 1
    return found[start:]


def _sentence(where: str, found: list[Payoff]) -> str:
    if not found:
        return f"{where} too little was measured to say whether leaving pays"
    active = ", ".join(map(str, found[0].active))
    paying = _paying(found)
    if paying:
        layers = [each.layer for each in paying]
        deeper = f" (up to {max(layers)} at some)" if max(layers) > min(layers) else ""
        return (
            f"{where} leaving pays from batch {paying[0].shape} on up to layer {min(layers)}"
            f"{deeper}, active exits {active}"
        )
    some = [each for each in found if each.layer]
    if not some:
        return f"{where} leaving never pays: the whole model answers before the first exit"
    listed = ", ".join(f"{each.shape} (up to layer {each.layer})" for each in some)
    return f"{where} leaving pays only at batch {listed}, active exits {active}"


def _saturated(lines: list[Line]) -> str:
    """Say what the engine does under full load, against the whole model in batches."""
    gains = [
        max(line["every_exit"], line["few_exits"]) / line["whole"]
        for line in lines
        if line["whole"]
    ]
    if not gains:
        return ""
    return (
        f"; under full load it answers {min(gains):.2f} to {max(gains):.2f} times as many rows as "
        "the whole model"
    )


def _line(each: Payoff) -> Line:
    return {
        "batch": str(each.shape),
        "whole_ms": each.best_ms,
        "fastest_whole": each.best,
        "active": list(each.active),
        "until_ms": list(each.until_ms),
        "pays_up_to_layer": each.layer or None,
    }
