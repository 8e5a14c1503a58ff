"""Subsets of active exits: how soon a row can leave, and what inner heads would add."""

from functools import partial
from typing import Any

from loadtest.bench.chain import until_exits_s
from loadtest.bench.gpu.bound_graph import BoundGraph, opened
from loadtest.bench.gpu.device_variant import DeviceVariant, spread
from loadtest.bench.gpu.medians import median_of, medians
from loadtest.bench.gpu.plan import Figures
from loadtest.bench.gpu.subject import Subject
from loadtest.bench.inputs import Shape, random_inputs

_SIZES = (1, 2, 3, 4, 6)


def measure_subsets(subject: Subject, figures: Figures, seconds: float) -> None:
    """Time each subset of exits for every shape, from text in to each exit's logits."""
    variant = subject.variant
    num_exits = len(variant.chain)
    sizes = [size for size in _SIZES if size < num_exits] + [num_exits]
    head = opened(variant, num_exits // 2, head=True)
    each_s = seconds / len(variant.shapes) / (len(sizes) + 1)
    for shape in variant.shapes:
        head_ms = 1e3 * median_of(BoundGraph(head, variant, shape).average_s, each_s)
        for size in sizes:
            active = spread(num_exits, size)
            figures.row("ms", **_timed(variant, shape, active, head_ms, each_s))


def _timed(
    variant: DeviceVariant, shape: Shape, active: tuple[int, ...], head_ms: float, seconds: float
) -> dict[str, Any]:
    """Return the times until each active exit.

    The heads between do not run. What they would add is computed from the time of one.
    """
    inputs = random_inputs(shape, variant.vocabulary)
    runner = variant.chain.presenting(active)
    [until_s] = medians([partial(until_exits_s, runner, inputs)], seconds)
    until_ms = [1e3 * each for each in until_s]
    skipped = [index - place for place, index in enumerate(active)]
    layers = variant.bundle.manifest.exit_layers
    return {
        "rows": shape.rows,
        "tokens": shape.tokens,
        "active": [layers[index] for index in active],
        "until_ms": until_ms,
        "with_inner_heads_ms": [
            ms + heads * head_ms for ms, heads in zip(until_ms, skipped, strict=True)
        ],
    }
