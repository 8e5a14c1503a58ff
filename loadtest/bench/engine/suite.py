"""All bars, one after the other, as one JSON document."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadtest.bench.engine.bars import Bar, Measured, Report
from loadtest.bench.engine.bookkeeping import bookkeeping
from loadtest.bench.engine.cached_bundle import cached_bundle
from loadtest.bench.engine.depth import leaving_early, price_of_cutting
from loadtest.bench.engine.lone_request import lone_request
from loadtest.bench.engine.memory import memory
from loadtest.bench.engine.settings import BERT_BASE, NARROW, Budget, ModelSettings
from loadtest.bench.engine.throughput import throughput
from loadtest.bench.loaded_bundle import LoadedBundle, load
from loadtest.bench.machine import machine_facts
from serve.bundle.manifest import Precision

_PARTS = (price_of_cutting, leaving_early, throughput, lone_request)


@dataclass(frozen=True)
class Plan:
    """One run of the bench."""

    precisions: tuple[Precision, ...]
    num_threads: int  # of every session
    budget: Budget  # how much is run
    cache: Path
    model: ModelSettings = BERT_BASE  # measured in all parts
    narrow: ModelSettings = NARROW  # measured for memory over many requests
    date: str = ""  # written into the document


def measure(plan: Plan, report: Report) -> dict[str, Any]:
    """Measure everything and return it as JSON data.

    Args:
        plan: what to measure.
        report: called with the name of the next step.

    Raises:
        BenchFailed: a model cannot be made, or the engine gave a wrong answer.
    """
    document: dict[str, Any] = {
        "date": plan.date,
        "machine": machine_facts(plan.num_threads),
        "model": asdict(plan.model) | {"head": _head(plan.model)},
        "budget": asdict(plan.budget),
    }
    report("looking for the models")
    bundle = cached_bundle(plan.model, plan.cache, report)
    narrow = cached_bundle(plan.narrow, plan.cache, report)
    bars, figures = bookkeeping(plan.budget, report)
    for precision in plan.precisions:
        report(f"{precision}: loading")
        loaded = load(bundle, precision, plan.num_threads)
        more_bars, figures[precision] = _measure_variant(loaded, plan.budget, report)
        bars += more_bars
    probes = (narrow, plan.budget.memory_requests), (bundle, plan.budget.wide_memory_requests)
    figures["memory"] = []
    for served, requests in probes:
        report(f"memory of a process that answers {requests:,} requests with {served.name}")
        more_bars, found = memory(served, requests, plan.num_threads)
        bars += more_bars
        figures["memory"].append(found)
    return document | {"bars": [bar.as_json() for bar in bars], "figures": figures}


def _measure_variant(loaded: LoadedBundle, budget: Budget, report: Report) -> Measured:
    bars: list[Bar] = []
    figures: dict[str, Any] = {}
    for part in _PARTS:
        more_bars, more_figures = part(loaded, budget, report)
        bars += more_bars
        figures |= more_figures
    return bars, figures


def _head(model: ModelSettings) -> str:
    pooler = "a tanh pooler, " if model.pooler else ""
    return f"the first token's hidden state, {pooler}a linear layer; one head after each layer"
