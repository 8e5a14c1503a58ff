"""Answers in time under more load than a server can take, with and without `overload`.

The capacity is what a closed loop gets under the policy without `overload`. Then requests arrive at
multiples of it, whatever becomes of them, in turns with and without. Each has the deadline as its
`timeout_ms`.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Final, NamedTuple

from loadtest.benchmarks.loads import ClosedLoop, arrive, request_bytes, saturate
from loadtest.http.client import Json
from loadtest.load.texts import load_texts, made_up
from loadtest.scenarios.scenario import Scenario
from models.quality.page import table

_SIZES, _LOADS = (1, 8), (1.0, 1.5, 2.0)  # texts in a request; times the capacity
_DEADLINE_S, _QUEUE_MS = 0.25, 50.0
_CLIENTS, _LIMIT_S, _NUM_REQUESTS = 16, 120.0, 800
_SETTLE_S = 3.0  # the queue is empty then
# More than the server here admits: the queue is the server's.
_MOST_OUTSTANDING = 4096
# Of the answers in time without `overload`: chance moves both sides.
_LEAST_KEPT = 0.9

_USUAL: Final[Json] = {
    "default": {"target": {"max_disagreement": 0.005}},
    "audit": {"share": 0.0},
}
_OVERLOAD: Final[Json] = {"queue_ms": _QUEUE_MS, "target": {"max_disagreement": 0.05}}
_HEAD = ("texts in a request", "load, of capacity", "requests/s", "without `overload`", "with it",
         "layers without", "with it")  # fmt: skip


class Goodput(NamedTuple):
    """The good answers of one load: status 200 within the deadline, seen by the client."""

    per_second: float
    layers: float  # mean of their texts


def overload(scenario: Scenario) -> None:
    """Load the server with and without `overload`; with it no fewer answers may be in time."""
    port, rows, gains = scenario.server.port, list[list[object]](), list[float]()
    for size in _SIZES:
        requests = _requests(scenario, size)
        _follow(scenario, _USUAL)
        most = capacity(port, requests, scenario.seconds)
        for load in _LOADS:
            found = []
            for policy in (_USUAL, _USUAL | {"overload": _OVERLOAD}):
                _follow(scenario, policy)
                found.append(goodput(port, requests, load * most, scenario.seconds, _DEADLINE_S))
            without, kept = found
            scenario.expect(
                kept.per_second >= _LEAST_KEPT * without.per_second,
                f"{size} texts, load {load:g}: {kept.per_second:.0f} answers/s in time with "
                f"`overload`, {without.per_second:.0f} without",
            )
            in_time = (round(without.per_second), round(kept.per_second))
            layers = without.layers, kept.layers
            gains.append(kept.per_second / max(without.per_second, 1))
            rows.append([size, f"{load:g}", round(load * most), *in_time, *layers])
    scenario.notes.append(f"up to {max(gains):.1f} times as many answers in time")
    scenario.tables.append(f"## Answers in time per second\n\n{table(_HEAD, rows)}")


def capacity(port: int, requests: Sequence[bytes], seconds: float) -> float:
    """Return the answers per second of a closed loop that keeps the server busy."""
    loaded = asyncio.run(saturate(port, requests, ClosedLoop(_CLIENTS, seconds, _LIMIT_S)))
    return sum(answer.status == 200 for answer in loaded.answers) / loaded.seconds


def goodput(
    port: int, requests: Sequence[bytes], per_second: float, seconds: float, deadline_s: float
) -> Goodput:
    """Send requests at a rate, whatever becomes of them, and count the good answers."""
    loaded = asyncio.run(arrive(port, requests, per_second, seconds, _MOST_OUTSTANDING))
    good = [a for a in loaded.answers if a.status == 200 and a.latency_s <= deadline_s]
    results = [each for answer in good for each in json.loads(answer.body)["results"]]
    layers = [result["exit"]["layer"] for result in results]
    return Goodput(len(good) / seconds, statistics.fmean(layers) if layers else 0.0)


def _requests(scenario: Scenario, size: int) -> list[bytes]:
    """Return requests of so many texts."""
    file = dict(zip(scenario.texts[::2], scenario.texts[1::2], strict=True))
    examples = load_texts(Path(file["--texts"]), file.get("--column")) if file else made_up()
    inputs = cycle(example.inputs for example in examples)
    asked = {"timeout_ms": 1e3 * _DEADLINE_S}
    several = (list(islice(inputs, size)) for _ in range(_NUM_REQUESTS))
    return [request_bytes({"inputs": given, **asked}) for given in several]


def _follow(scenario: Scenario, policy: Json) -> None:
    """Put a policy, and wait until what the one before it has left is over."""
    client, model = scenario.client, scenario.model["name"]
    client.replace_policy(model, client.policy(model), policy)
    time.sleep(_SETTLE_S)
