"""The engine on the device: a lone request, and saturated throughput."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from loadtest.bench.engine_driver import driving, row_of
from loadtest.bench.gpu.device_variant import DeviceVariant
from serve.engine.executor import ModelShape
from serve.engine.row import Row
from serve.engine.runner import ModelRunner
from serve.rules import ExitRule, LayerRule, NeverRule

LENGTHS = (8, 64)  # of the texts, uniform
_LONE = 50
_PROBE_ROWS = 256


class Throughput(NamedTuple):
    """The engine's throughput under one way of leaving."""

    way: str  # how rows leave
    lone_ms: float  # median time of a request that is alone in the engine
    rows_per_s: float  # answers per second while rows were always waiting
    rows: int  # how many rows that was measured on


def measure_throughput(variant: DeviceVariant, seconds: float) -> list[Throughput]:
    """Return exits uniform over the layers, and the whole model for every row."""
    generator = np.random.default_rng(2)
    layers = variant.bundle.manifest.exit_layers
    every = variant.shape
    last = ModelShape(
        replace(every.traits, exits=every.exits[-1:]), every.temperatures[-1:], every.pad_id
    )
    whole = variant.chain.presenting((len(variant.chain) - 1,))

    def any_layer() -> ExitRule:
        return LayerRule(layer=int(generator.choice(layers)))

    ways: list[tuple[str, ModelRunner, ModelShape, Callable[[], ExitRule]]] = [
        ("exits uniform over the layers", variant.chain, every, any_layer),
        ("at the last exit, every exit evaluated", variant.chain, every, NeverRule),
        ("at the last exit, the only active one", whole, last, NeverRule),
    ]
    found = []
    for way, runner, shape, rule in ways:
        with driving(runner, shape) as driver:
            rows = _rows(variant, shape, generator, _PROBE_ROWS, rule)
            per_second = len(rows) / driver.run(rows, len(rows))
            lone_s = [driver.run([row], 1) for row in _rows(variant, shape, generator, _LONE, rule)]
            many = _rows(
                variant, shape, generator, max(_PROBE_ROWS, int(per_second * seconds)), rule
            )
            rows_per_s = len(many) / driver.run(many, len(many))
        found.append(Throughput(way, 1e3 * float(np.median(lone_s)), rows_per_s, len(many)))
    return found


def _rows(
    variant: DeviceVariant,
    shape: ModelShape,
    generator: np.random.Generator,
    num: int,
    rule: Callable[[], ExitRule],
) -> list[Row]:
    shortest, longest = (min(length, variant.max_tokens) for length in LENGTHS)
    lengths = generator.integers(shortest, longest + 1, num)
    return [row_of(shape, generator.integers(0, variant.vocabulary, n), rule()) for n in lengths]
