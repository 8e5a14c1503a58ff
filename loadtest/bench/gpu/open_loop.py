"""p50 and p99 of texts that come at random, with and without a busy Python thread."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from loadtest.bench.engine_driver import driving, rows_of
from loadtest.bench.gpu.device_variant import DeviceVariant, Presented
from loadtest.bench.gpu.plan import Figures
from loadtest.bench.gpu.subject import Subject
from loadtest.bench.gpu.throughput import MAX_ROWS, active_sets, rate_of
from loadtest.bench.inputs import random_texts
from loadtest.simulator.exit_mixes import ExitMix, read_mix
from loadtest.simulator.lengths import sst2_lengths
from serve.engine.scheduler import BatchLimits

LOADS = (0.3, 0.6, 0.9)  # of the capacity
SWITCH_INTERVALS_S = (5e-3, 1e-4)  # Python's own, and the server's on CUDA
_FEWEST = 8  # rows
_SHARE = 0.8  # of the time; drawing texts takes the rest


def measure_open_loop(subject: Subject, figures: Figures, seconds: float) -> None:
    """Measure the capacity, then latencies at shares of it, on texts that leave uniformly."""
    variant = subject.variant
    presented = variant.presenting(active_sets(variant)["few_exits"])
    depth = variant.bundle.manifest.num_layers
    mix = read_mix(f"uniform:1-{depth}", depth)
    limits = BatchLimits(max_rows=MAX_ROWS, max_tokens=variant.scale.token_limits[-1])
    each_s = seconds / (1 + 2 * len(SWITCH_INTERVALS_S) * len(LOADS))
    capacity = rate_of(variant, presented, mix, limits, each_s)
    figures.add("capacity_rows_per_s", capacity)
    for interval_s in SWITCH_INTERVALS_S:
        for busy in (False, True):
            with _switching(interval_s), _busy_thread(busy):
                for load in LOADS:
                    rate = load * capacity
                    line = _latencies(variant, presented, (mix, limits), rate, each_s)
                    case = {"switch_interval_ms": 1e3 * interval_s, "busy_thread": busy}
                    figures.row("latency", **case, load=load, **line)


def _latencies(
    variant: DeviceVariant,
    presented: Presented,
    setting: tuple[ExitMix, BatchLimits],
    rate: float,
    seconds: float,
) -> dict[str, Any]:
    mix, limits = setting
    num = max(_FEWEST, int(rate * seconds * _SHARE))
    generator = np.random.default_rng(3)
    due_s = np.cumsum(generator.exponential(1 / rate, num))
    lengths = np.minimum(sst2_lengths(num, seed=3), variant.max_tokens)
    texts = random_texts(lengths, variant.vocabulary)
    rows = rows_of(presented.shape, texts, presented.layers(mix.draw(num, generator).tolist()))
    for place, row in enumerate(rows):
        row.tag = place
    with driving(presented.runner, presented.shape, limits) as driver:
        p50_s, p99_s = np.percentile(driver.follow(rows, due_s), (50, 99))
    return {"rows": num, "p50_ms": 1e3 * float(p50_s), "p99_ms": 1e3 * float(p99_s)}


@contextmanager
def _switching(interval_s: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval_s)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _busy_thread(busy: bool) -> Iterator[None]:
    """Let a thread compute in Python meanwhile, as one that reads and writes JSON does."""
    stopped = threading.Event()

    def compute() -> None:
        while not stopped.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    if busy:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        if busy:
            thread.join()
