"""All bars, one after the other, as one JSON document."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadtest.bench.engine.bars import Bar
from loadtest.bench.engine.bookkeeping import bookkeeping
from loadtest.bench.engine.cached_bundle import cached_bundle
from loadtest.bench.engine.depth import leaving_early, price_of_cutting
from loadtest.bench.engine.loaded_bundle import Subject, loaded
from loadtest.bench.engine.lone_request import lone_request
from loadtest.bench.engine.memory import memory
from loadtest.bench.engine.settings import BERT_BASE, NARROW, Budget, ModelSettings
from loadtest.bench.engine.throughput import throughput
from loadtest.bench.machine import machine_facts
from serve.bundle.manifest import Precision

Document = dict[str, Any]
Report = Callable[[str], None]

_PARTS = (price_of_cutting, leaving_early, throughput, lone_request)


@dataclass(frozen=True)
class Plan:
    """One run of the bench.

    Attributes:
        precisions: variants to measure.
        num_threads: of every session.
        budget: how much is run.
        cache: folder for the models' bundles.
        model: everything but memory is measured on it.
        narrow: memory over many requests is measured on it.
        date: handed through to the document.
    """

    precisions: tuple[Precision, ...]
    num_threads: int
    budget: Budget
    cache: Path
    model: ModelSettings = BERT_BASE
    narrow: ModelSettings = NARROW
    date: str = ""


def measure(plan: Plan, report: Report) -> Document:
    """Measure everything and return it as JSON data.

    Args:
        plan: what to measure.
        report: told what is done, before it is done.

    Raises:
        BenchFailed: a model cannot be made, or the engine did not do what it was told.
    """
    document: Document = {
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
        with loaded(bundle, precision, plan.model.vocabulary, plan.num_threads) as subject:
            more_bars, figures[precision] = _measure_subject(subject, plan.budget, report)
        bars += more_bars
    probes = (narrow, plan.budget.memory_requests), (bundle, plan.budget.wide_memory_requests)
    figures["memory"] = []
    for served, requests in probes:
        report(f"memory of a process that answers {requests:,} requests with {served.name}")
        more_bars, found = memory(served, requests, plan.num_threads)
        bars += more_bars
        figures["memory"].append(found)
    return document | {"bars": [bar.as_json() for bar in bars], "figures": figures}


def _measure_subject(
    subject: Subject, budget: Budget, report: Report
) -> tuple[list[Bar], dict[str, Any]]:
    bars: list[Bar] = []
    figures: dict[str, Any] = {}
    for part in _PARTS:
        more_bars, more_figures = part(subject, budget, report)
        bars += more_bars
        figures |= more_figures
    return bars, figures


def _head(model: ModelSettings) -> str:
    pooler = "a tanh pooler, " if model.pooler else ""
    return f"the first token's hidden state, {pooler}a linear layer; one head after each layer"
