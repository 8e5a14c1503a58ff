"""All bars, one after the other."""

from typing import NamedTuple

from loadtest.bench.engine.bars import Bar, Report
from loadtest.bench.engine.bookkeeping import bookkeeping
from loadtest.bench.engine.depth import leaving_early, lone_request, price_of_cutting
from loadtest.bench.engine.memory import memory
from loadtest.bench.engine.settings import Budget
from loadtest.bench.engine.throughput import throughput
from loadtest.bench.loaded_bundle import load
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision

_PARTS = (price_of_cutting, leaving_early, throughput, lone_request)


class Plan(NamedTuple):
    """One run of the bench.

    Attributes:
        precisions: variants to measure.
        num_threads: of every session.
        budget: how much is run.
    """

    precisions: tuple[Precision, ...]
    num_threads: int
    budget: Budget


def measure(plan: Plan, bundle: Bundle, narrow: Bundle, report: Report) -> list[Bar]:
    """Measure everything.

    Args:
        plan: what to measure.
        bundle: measured in all parts.
        narrow: measured for memory over many requests.
        report: called with the name of the next step.

    Raises:
        BenchFailed: the engine gave a wrong answer.
    """
    budget = plan.budget
    bars = bookkeeping(budget, report)
    for precision in plan.precisions:
        report(f"{precision}: loading")
        loaded = load(bundle, precision, plan.num_threads)
        for part in _PARTS:
            bars += part(loaded, budget, report)
    for served, requests in (narrow, budget.memory_requests), (bundle, budget.wide_memory_requests):
        report(f"memory of a process that answers {requests:,} requests with {served.name}")
        bars += memory(served, requests, plan.num_threads)
    return bars
