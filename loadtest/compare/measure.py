"""Measure one contender."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from loadtest.compare.contenders import Contender
from loadtest.compare.cores import Cores, on, running
from loadtest.compare.loads import ClosedLoop, TimedAnswer, arrive, request_bytes, saturate
from loadtest.http.client import Json
from loadtest.http.processes import cost_of, own_cpu_s
from loadtest.http.server_process import ServerProcess
from loadtest.load.texts import Example
from serve.errors import OfframpError

_WARM_UP_S = 2.0


class WrongAnswers(OfframpError):
    """A contender does not answer as it should; the message has an example."""


class Setting(NamedTuple):
    """The texts, cores and closed loop of every contender."""

    examples: Sequence[Example]
    cores: Cores
    load: ClosedLoop


def measure_saturated(contender: Contender, setting: Setting) -> tuple[Json, tuple[str, ...]]:
    """Start it, load it in a closed loop, stop it; return figures, and the label of every text.

    Raises:
        ServerFailed: it did not start, or did not stop.
        WrongAnswers: it failed to answer.
    """
    with _warm(contender, setting) as (server, requests):
        before, own_s = cost_of(server.family.running(), memory=False), own_cpu_s()
        loaded = asyncio.run(saturate(server.port, requests, setting.load))
        own_s = own_cpu_s() - own_s
        after = cost_of(server.family.running())
    labels, mean_layer = _answers(contender, loaded.answers, len(requests))
    per_1000 = 1e3 / len(loaded.answers)
    return {
        "name": contender.name,
        "mean_layer": mean_layer,  # None without exits
        "per_second": len(loaded.answers) / loaded.seconds,
        "cpu_s_per_1000": after.cpu_since(before) * per_1000,
        "load_cpu_s_per_1000": own_s * per_1000,
        "memory_mb": after.memory_mb,
    }, labels


def measure_fixed(contender: Contender, setting: Setting, per_second: float) -> Json:
    """Start it, load it at a fixed rate in an open loop, stop it; times are from when due."""
    with _warm(contender, setting) as (server, requests):
        loaded = asyncio.run(arrive(server.port, requests, per_second, setting.load.seconds))
    times = [1e3 * answer.latency_s for answer in loaded.answers if answer.status == 200]
    p50, p99 = np.quantile(times, (0.5, 0.99)).tolist() if times else (np.nan, np.nan)
    failed = len(loaded.answers) - len(times)
    return {"p50_ms": p50, "p99_ms": p99, "late_ms": 1e3 * loaded.late_s, "failed": failed}


@contextmanager
def _warm(contender: Contender, setting: Setting) -> Iterator[tuple[ServerProcess, list[bytes]]]:
    """Run a contender's server for a block, warmed up, and the block on the load's cores."""
    requests = [
        request_bytes({"inputs": example.inputs} | contender.extra) for example in setting.examples
    ]
    warm = ClosedLoop(setting.load.clients, 0.0, _WARM_UP_S)
    with running(contender.command, setting.cores) as server, on(setting.cores.load):
        asyncio.run(saturate(server.port, requests, warm))
        yield server, requests


def _answers(
    contender: Contender, answers: Sequence[TimedAnswer], num_texts: int
) -> tuple[tuple[str, ...], float | None]:
    """Return the label of every text, and the mean exit layer if there are exits."""
    labels: dict[int, str] = {}
    layers: list[int] = []
    for answer in answers:
        if answer.status != 200:
            raise WrongAnswers(f"{contender.name} answered {answer.shown()}")
        (result,) = json.loads(answer.body)["results"]
        labels[answer.place] = result["label"]
        if "exit" in result:
            layers.append(result["exit"]["layer"])
    if len(labels) < num_texts:
        raise WrongAnswers(
            f"{contender.name} answered {len(labels)} of {num_texts} texts in time: "
            "give fewer --texts"
        )
    mean = sum(layers) / len(layers) if layers else None
    return tuple(labels[place] for place in range(num_texts)), mean
