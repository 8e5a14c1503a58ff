"""Rows per second under full load, beside dynamic batching over the whole model."""

from time import perf_counter
from typing import Any

import numpy as np

from loadtest.bench.engine_driver import Driver, driving, rows_of
from loadtest.bench.gpu.bound_graph import WholeModel
from loadtest.bench.gpu.device_variant import DeviceVariant, Presented, spread
from loadtest.bench.gpu.plan import Figures
from loadtest.bench.gpu.shapes import whole_model
from loadtest.bench.gpu.subject import NO_ONE_GRAPH, Subject
from loadtest.bench.inputs import random_texts
from loadtest.bench.whole_model import answer_all
from loadtest.simulator.exit_mixes import ExitMix, read_mix
from loadtest.simulator.lengths import sst2_lengths
from serve.engine.scheduler import BatchLimits

MAX_ROWS = 512  # in a batch
FEW = 3  # active exits of the second contender
# In flight, as a multiple of the tokens of a full batch.
_BATCHES = 3
_MEAN_TOKENS = 25
# Of the time, for the run that counts; drawing its texts and the probe before it take the rest.
_SHARE = 0.5


def mixes(num_layers: int) -> list[ExitMix]:
    """Return four ways of leaving: over all layers, early for the most part, half-way, never."""
    depth = num_layers
    half = max(1, depth // 2)
    texts = (f"uniform:1-{depth}", f"deebert:{0.4 * depth:g}", f"fixed:{half}", "never")
    return [read_mix(text, depth) for text in texts]


def active_sets(variant: DeviceVariant) -> dict[str, tuple[int, ...]]:
    """Return the contenders' active exits, by name."""
    every = len(variant.chain)
    few = min(FEW, every)
    return {"every_exit": spread(every, every), "few_exits": spread(every, few)}


def measure_throughput(subject: Subject, figures: Figures, seconds: float) -> None:
    """Answer the same texts by the engine and by batches of the whole model."""
    variant = subject.variant
    whole = whole_model(subject)
    if whole is None:
        figures.skip("whole", NO_ONE_GRAPH)
    contenders = {name: variant.presenting(each) for name, each in active_sets(variant).items()}
    for name, presented in contenders.items():
        figures.add(name, list(presented.shape.exits))
    found_mixes = mixes(variant.bundle.manifest.num_layers)
    token_limits = variant.scale.token_limits
    cells = len(token_limits) * (1 + len(contenders) * len(found_mixes))
    each_s = seconds / cells
    for token_limit in token_limits:
        limits = BatchLimits(max_rows=MAX_ROWS, max_tokens=token_limit)
        base = _whole_rate(variant, whole, limits, each_s) if whole else None
        for mix in found_mixes:
            rates = {
                name: rate_of(variant, presented, mix, limits, each_s)
                for name, presented in contenders.items()
            }
            line: dict[str, Any] = {"token_limit": token_limit, "mix": mix.name}
            figures.row("rows_per_s", **line, mean_exit=mix.mean, whole=base, **rates)


def rate_of(
    variant: DeviceVariant, presented: Presented, mix: ExitMix, limits: BatchLimits, seconds: float
) -> float:
    """Return the rows per second of the engine, rows always waiting."""
    with driving(presented.runner, presented.shape, limits) as driver:
        few = _rows_in_flight(variant, limits)
        run_s = _run_s(variant, presented, driver, mix, few)
        num = max(few, int(few / run_s * seconds * _SHARE))
        return num / _run_s(variant, presented, driver, mix, num)


def _run_s(
    variant: DeviceVariant, presented: Presented, driver: Driver, mix: ExitMix, num: int
) -> float:
    lengths = np.minimum(sst2_lengths(num, seed=1), variant.max_tokens)
    texts = random_texts(lengths, variant.vocabulary)
    layers = presented.layers(mix.assign(lengths).tolist())
    rows = rows_of(presented.shape, texts, layers)
    return driver.run(rows, _rows_in_flight(variant, driver.limits))


def _whole_rate(
    variant: DeviceVariant, whole: WholeModel, limits: BatchLimits, seconds: float
) -> float:
    window = _rows_in_flight(variant, limits)

    def run_s(num: int) -> float:
        lengths = np.minimum(sst2_lengths(num, seed=1), variant.max_tokens)
        texts = random_texts(lengths, variant.vocabulary)
        began = perf_counter()
        answer_all(whole, texts, window, limits, variant.shape.pad_id)
        return perf_counter() - began

    num = max(window, int(window / run_s(window) * seconds * _SHARE))
    return num / run_s(num)


def _rows_in_flight(variant: DeviceVariant, limits: BatchLimits) -> int:
    return max(1, _BATCHES * limits.max_tokens // min(_MEAN_TOKENS, variant.max_tokens))
