"""The outcome of every request, and how well the device was used."""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from loadtest.simulator.workload import Workload

UNANSWERED = -1.0


@dataclass(slots=True)
class Record:
    """Written while a contender runs."""

    answered_s: list[float]  # one per request; negative if the deadline came before any answer
    layers: list[int]  # segments run per answer
    answers: list[int]  # how often each request was answered or given up; 1 each in the end
    busy_s: float = 0.0  # time in which the device or its host worked
    num_tokens: int = 0  # real tokens that went through segments
    padded_tokens: int = 0  # those with padding
    batch_rows: Counter[int] = field(default_factory=Counter)  # rows -> segment runs with so many

    @classmethod
    def of(cls, num: int) -> "Record":
        """Return an empty record for so many requests."""
        return cls([UNANSWERED] * num, [0] * num, [0] * num)

    def answer(self, request: int, now_s: float, layer: int) -> None:
        """Record a request's answer after `layer` segments."""
        self.answered_s[request] = now_s
        self.layers[request] = layer
        self.answers[request] += 1

    def give_up(self, request: int) -> None:
        """Record a request that did not start before its deadline."""
        self.answers[request] += 1

    def run(self, rows: int, real_tokens: int, longest: int) -> None:
        """Record one run of one segment."""
        self.batch_rows[rows] += 1
        self.num_tokens += real_tokens
        self.padded_tokens += rows * longest


@dataclass(frozen=True, slots=True)
class Figures:
    """One contender on one workload."""

    contender: str
    offered_per_s: float  # mean rate of arrivals
    answered_per_s: float  # requests over the time from the first arrival to the last answer
    utilisation: float  # share of that time in which the device or its host worked
    p50_ms: float  # latency from arrival to answer, of those answered
    p99_ms: float  # 99th percentile; infinite if more than 1 % got no answer
    lone_p99_ms: float  # 99th percentile of texts that are requests of their own
    within_bound: float  # share of all requests answered within the bound
    batch_rows: float  # mean rows per segment run
    batch_rows_p10: float  # tenth percentile over segment runs
    batch_rows_p90: float  # ninetieth percentile
    padding: float  # share of tokens computed that were padding
    mean_layer: float  # mean segments run per answer
    unanswered: int  # requests whose deadline came first


def figures(contender: str, work: Workload, record: Record, bound_s: float) -> Figures:
    """Sum up a finished record.

    Raises:
        RuntimeError: a request was lost or answered twice.
    """
    if any(times != 1 for times in record.answers):
        raise RuntimeError(f"{contender}: not every request was answered exactly once")
    answered_s = np.array(record.answered_s)
    answered = answered_s >= 0
    latency_s = np.where(answered, answered_s - work.arrival_s, np.inf)
    began_s = float(work.arrival_s[0])
    span_s = float(max(answered_s.max(), work.arrival_s[-1])) - began_s
    spread_s = float(work.arrival_s[-1]) - began_s
    rows = np.repeat(*_counts(record.batch_rows))
    return Figures(
        contender=contender,
        offered_per_s=len(work) / spread_s if spread_s else np.inf,
        answered_per_s=int(answered.sum()) / span_s,
        utilisation=record.busy_s / span_s,
        p50_ms=_percentile_ms(latency_s, 50),
        p99_ms=_percentile_ms(latency_s, 99),
        lone_p99_ms=_percentile_ms(latency_s[work.lone], 99),
        within_bound=float((latency_s <= bound_s).mean()),
        batch_rows=float(rows.mean()),
        batch_rows_p10=float(np.percentile(rows, 10)),
        batch_rows_p90=float(np.percentile(rows, 90)),
        padding=1 - record.num_tokens / record.padded_tokens,
        mean_layer=float(np.array(record.layers)[answered].mean()),
        unanswered=int((~answered).sum()),
    )


def _counts(batch_rows: Counter[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows, times = zip(*sorted(batch_rows.items()), strict=True)
    return np.array(rows), np.array(times)


def _percentile_ms(latency_s: NDArray[np.float64], percent: float) -> float:
    if not len(latency_s):
        return math.nan
    return float(np.percentile(latency_s, percent, method="higher")) * 1000
