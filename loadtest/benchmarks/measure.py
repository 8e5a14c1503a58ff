"""Measure one contender: its labels first, then its loads, each as a cell."""

import asyncio
import datetime
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import NamedTuple

import numpy as np

from loadtest.benchmarks.cells import Cells, Key
from loadtest.benchmarks.contenders import Contender
from loadtest.benchmarks.cores import Cores, on
from loadtest.benchmarks.loads import (
    ClosedLoop,
    TimedAnswer,
    arrive,
    request_bytes,
    saturate,
    status_of,
)
from loadtest.http.client import Json
from loadtest.http.processes import cost_of
from loadtest.http.server_process import ServerFailed, ServerProcess, on_free_port
from loadtest.load.texts import Example
from serve.errors import OfframpError
from serve.runtime.hardware import cpu_model

CHECK, LEFT_OUT = "labels", "left out"
_START_S, _CHECK_S, _POLL_S, _WARM_S = 180.0, 180.0, 0.1, 2.0
_CHECK_CLIENTS = 16
_AROUND_S, _TRIES = 25.0, 3  # start, check and end; tries of an open loop
# Rates that the open loop tries, over the closed loop's best.
_SHARES = tuple(share / 20 for share in range(5, 21))


class WrongAnswers(OfframpError):
    """A contender does not answer as it should; the message has an example."""


class Suite(NamedTuple):
    """A model, its texts, and the loads that every contender gets."""

    name: str
    examples: Sequence[Example]
    labels: tuple[str, ...]  # the model's
    expected: Sequence[str]  # the whole model's label of each text
    closed: Sequence[tuple[int, int]]  # clients, and texts in a request
    bounds_ms: Sequence[int]  # on p99 in the open loop

    def loads(self) -> list[str]:
        """Return the names of all its cells."""
        closed = [f"closed {clients} x {texts}" for clients, texts in self.closed]
        return [CHECK, *closed, *(f"open {bound} ms" for bound in self.bounds_ms)]


def expected_s(loads: Sequence[str], seconds: float) -> float:
    """Return about how long loads of so many seconds take with a contender; none take nothing."""
    tries = sum(_TRIES if load.startswith("open") else load != CHECK for load in loads)
    return _AROUND_S + tries * seconds if loads else 0.0


class Run(NamedTuple):
    """What all measurements share."""

    cells: Cells
    cores: Cores
    seconds: float  # of each load
    report: Callable[[str], None]


def measure(contender: Contender, suite: Suite, round_: int, run: Run) -> None:
    """Start a contender, measure what is missing of its cells in a round, and stop it.

    Raises:
        ServerFailed: it did not start, or did not stop.
        WrongAnswers: it failed to answer, or its labels are not the whole model's.
    """
    keys = {load: Key(suite.name, contender.name, round_, load) for load in suite.loads()}
    if not run.cells.missing(suite.name, contender.name, round_, suite.loads()):
        return
    singles = [contender.dialect.request([_text(e)], contender.extra) for e in suite.examples]
    with _started(contender, singles[0], run) as (server, start_s):
        run.report(f"{contender.name}: answers after {start_s:.1f} s")
        checked = _checked(contender, suite, server, singles) | {"start_s": start_s}
        run.cells.add(keys[CHECK], checked)
        asyncio.run(saturate(server.port, singles, ClosedLoop(16, _WARM_S, _WARM_S)))
        _closed_cells(contender, suite, server, keys, run)
        _open_cells(contender, suite, server, keys, run, singles)


def _closed_cells(
    contender: Contender, suite: Suite, server: ServerProcess, keys: Mapping[str, Key], run: Run
) -> None:
    for load in suite.closed:
        key = keys["closed {} x {}".format(*load)]
        if key not in run.cells.by_key:
            found = _closed(contender, suite, server, load, run.seconds)
            run.cells.add(key, found)
            run.report(f"{contender.name}: {key.load}, {found['per_second']:.0f} texts/s")


def _open_cells(
    contender: Contender,
    suite: Suite,
    server: ServerProcess,
    keys: Mapping[str, Key],
    run: Run,
    requests: Sequence[bytes],
) -> None:
    closed = [run.cells.by_key[keys[f"closed {c} x 1"]] for c, texts in suite.closed if texts == 1]
    best = max(cell["per_second"] for cell in closed)

    @cache
    def p99_ms(share: float) -> float:
        return _p99_ms(server, requests, share * best, run.seconds)

    for bound in suite.bounds_ms:
        key = keys[f"open {bound} ms"]
        if key not in run.cells.by_key:
            share = highest(_SHARES, lambda share, bound=bound: p99_ms(share) < bound)  # type: ignore[misc]
            run.cells.add(key, {"per_second": share * best})
            run.report(f"{contender.name}: {key.load}, {share * best:.0f} texts/s")


def highest(shares: Sequence[float], holds: Callable[[float], bool]) -> float:
    """Return the highest share that holds, by bisection; 0 if none does."""
    low, high = 0, len(shares)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if holds(shares[middle]) else (low, middle)
    return shares[low - 1] if low else 0.0


def _text(example: Example) -> str:
    if not isinstance(example.inputs, str):
        raise WrongAnswers("the servers that are compared take single texts, and these are pairs")
    return example.inputs


@contextmanager
def _started(
    contender: Contender, request: bytes, run: Run
) -> Iterator[tuple[ServerProcess, float]]:
    """Run a contender's server on its cores for a block, and the block on the load's cores."""
    began_s = time.monotonic()
    with ExitStack() as stack:
        with on(run.cores.servers):
            server = stack.enter_context(on_free_port(*contender.command))
        stack.enter_context(on(run.cores.load))
        while asyncio.run(status_of(server.port, request)) != 200:
            if server.status(_POLL_S) is not None or time.monotonic() - began_s > _START_S:
                raise ServerFailed(f"{contender.name} does not answer:\n{server.last_lines()}")
        yield server, time.monotonic() - began_s


def _checked(
    contender: Contender, suite: Suite, server: ServerProcess, requests: Sequence[bytes]
) -> Json:
    """Return how often its labels are the whole model's and the texts', and how it fails."""
    load = ClosedLoop(_CHECK_CLIENTS, 0.0, _CHECK_S)
    answers = asyncio.run(saturate(server.port, requests, load)).answers
    said = {answer.place: _results(contender, answer)[0] for answer in answers}
    if len(said) < len(requests):
        raise WrongAnswers(f"{contender.name} answered {len(said)} of {len(requests)} texts")
    labels = [said[place]["label"] for place in range(len(requests))]
    same = float(np.mean([a == b for a, b in zip(labels, suite.expected, strict=True)]))
    if same < contender.exact:
        raise WrongAnswers(f"{contender.name} gives {same:.1%} of the whole model's labels")
    rights = [e.right(each, suite.labels) for e, each in zip(suite.examples, labels, strict=True)]
    known = [right for right in rights if right is not None]
    layers = [result["exit"]["layer"] for result in said.values() if "exit" in result]
    path = contender.dialect.path
    broken = {
        "cut off": request_bytes({}, path)[:-1] + b"[",
        "wrong type": request_bytes({"inputs": 7}, path),
    }
    asked: dict[str, int | None] = {
        name: asyncio.run(status_of(server.port, each)) for name, each in broken.items()
    }
    pages = {"health": contender.health, "metrics": contender.metrics}
    asked |= {name: _get(server, page) for name, page in pages.items()}
    return {
        "same": same,
        "accuracy": float(np.mean(known)) if known else None,
        "mean_layer": float(np.mean(layers)) if layers else None,
        "statuses": asked,
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_model(),
    }


def _get(server: ServerProcess, path: str) -> int | None:
    """Return the status of a page; None without one."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    return asyncio.run(status_of(server.port, request)) if path else None


def _results(contender: Contender, answer: TimedAnswer) -> list[Json]:
    if answer.status != 200:
        raise WrongAnswers(f"{contender.name} answered {answer.shown()}")
    return contender.dialect.results(json.loads(answer.body))


def _closed(
    contender: Contender,
    suite: Suite,
    server: ServerProcess,
    load: tuple[int, int],
    seconds: float,
) -> Json:
    """Return figures of a closed loop of so many clients, with so many texts in a request."""
    clients, texts = load
    inputs = [_text(example) for example in suite.examples]
    inputs += inputs[:texts]
    requests = [
        contender.dialect.request(inputs[start : start + texts], contender.extra)
        for start in range(0, len(suite.examples), texts)
    ]
    before = cost_of(server.family.running(), memory=False)
    loaded = asyncio.run(saturate(server.port, requests, ClosedLoop(clients, seconds, seconds)))
    after = cost_of(server.family.running())
    for answer in loaded.answers:
        if answer.status != 200:
            raise WrongAnswers(f"{contender.name} answered {answer.shown()}")
    num = len(loaded.answers) * texts
    p50, p99 = np.quantile([1e3 * a.latency_s for a in loaded.answers], (0.5, 0.99)).tolist()
    return {
        "per_second": num / loaded.seconds,
        "p50_ms": p50,
        "p99_ms": p99,
        "cpu_s_per_1000": after.cpu_since(before) * 1e3 / num,
        "memory_mb": after.memory_mb,
    }


def _p99_ms(
    server: ServerProcess, requests: Sequence[bytes], per_second: float, seconds: float
) -> float:
    """Return p99 from the intended send time; infinite if a request failed."""
    answers = asyncio.run(arrive(server.port, requests, per_second, seconds)).answers
    failed = not answers or any(answer.status != 200 for answer in answers)
    return (
        float("inf") if failed else 1e3 * float(np.quantile([a.latency_s for a in answers], 0.99))
    )
