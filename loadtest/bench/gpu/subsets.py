"""Subsets of active exits: how soon a row can leave."""

from functools import partial

from loadtest.bench.chain import until_exits_s
from loadtest.bench.gpu.device_variant import spread
from loadtest.bench.gpu.medians import medians
from loadtest.bench.gpu.plan import Figures
from loadtest.bench.gpu.subject import Subject
from loadtest.bench.inputs import random_inputs

_SIZES = (1, 2, 3, 4, 6)


def measure_subsets(subject: Subject, figures: Figures, seconds: float) -> None:
    """Time each subset of exits for every shape, from text in to each exit's logits."""
    variant = subject.variant
    num_exits, layers = len(variant.chain), variant.bundle.manifest.exit_layers
    sizes = [size for size in _SIZES if size < num_exits] + [num_exits]
    each_s = seconds / len(variant.shapes) / len(sizes)
    for shape in variant.shapes:
        inputs = random_inputs(shape, variant.vocabulary)
        for size in sizes:
            active = spread(num_exits, size)
            runner = variant.chain.presenting(active)
            [until_s] = medians([partial(until_exits_s, runner, inputs)], each_s)
            figures.row(
                "ms",
                rows=shape.rows,
                tokens=shape.tokens,
                active=[layers[index] for index in active],
                until_ms=[1e3 * each for each in until_s],
            )
