"""What a batch of each shape takes: the whole model, a layer, a head, the host."""

from typing import Any

import numpy as np

from loadtest.bench.engine_driver import driving, row_of
from loadtest.bench.gpu.bound_graph import BoundGraph, WholeModel, opened
from loadtest.bench.gpu.device_variant import DeviceVariant
from loadtest.bench.gpu.medians import median_of, median_s
from loadtest.bench.gpu.plan import Figures
from loadtest.bench.gpu.subject import NO_ONE_GRAPH, Subject
from loadtest.bench.inputs import Shape
from serve.engine.scheduler import BatchLimits
from serve.rules import EntropyRule

_FIGURES = 4  # per shape, of about the same time each


def measure_shapes(subject: Subject, figures: Figures, seconds: float) -> None:
    """Time every shape; the simulator reads `times`."""
    variant = subject.variant
    middle = len(variant.chain) // 2
    body, head = opened(variant, middle), opened(variant, middle, head=True)
    whole = subject.one_graph and variant.place.opener()(subject.one_graph)
    if whole is None:
        figures.skip("whole model", NO_ONE_GRAPH)
    each_s = seconds / len(variant.shapes) / _FIGURES
    for shape in variant.shapes:
        bound = [BoundGraph(session, variant, shape) for session in (body, head)]
        segment_s, head_s = (median_of(graph.average_s, each_s) for graph in bound)
        whole_s = None
        if whole is not None:
            # The host's time is a figure of its own: nothing is copied here.
            whole_s = median_s(BoundGraph(whole, variant, shape).run, each_s)
        host_s = max(0.0, _engine_s(variant, shape, each_s) - segment_s - head_s)
        figures.row(
            "times",
            rows=shape.rows,
            tokens=shape.tokens,
            whole_ms=_ms(whole_s),
            segment_ms=1e3 * segment_s / _layers_of(variant, middle),
            head_ms=1e3 * head_s,
            host_us=1e6 * host_s,
        )


def whole_model(subject: Subject) -> WholeModel | None:
    """Return the whole model as one graph on the device; None if there is none."""
    variant = subject.variant
    if subject.one_graph is None:
        return None
    return WholeModel(variant, variant.place.opener()(subject.one_graph))


def _layers_of(variant: DeviceVariant, segment: int) -> int:
    layers = (0, *variant.bundle.manifest.exit_layers)
    return layers[segment + 1] - layers[segment]


def _engine_s(variant: DeviceVariant, shape: Shape, seconds: float) -> float:
    """Return the seconds per exit of a batch that the engine judges at every exit."""
    generator = np.random.default_rng(0)
    rule = EntropyRule(threshold=0)
    limits = BatchLimits(max_rows=shape.rows, max_tokens=shape.rows * shape.tokens)
    with driving(variant.chain, variant.shape, limits) as driver:

        def run() -> float:
            texts = generator.integers(0, variant.vocabulary, shape)
            return driver.run([row_of(variant.shape, text, rule) for text in texts], shape.rows)

        return median_of(run, seconds) / len(variant.chain)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def device_times(document: dict[str, Any]) -> dict[str, Any] | None:
    """Return what `loadtest.simulator` reads; None if too little was measured."""
    times = document["steps"].get("shapes", {}).get("times", [])
    shapes = [line for line in times if line["whole_ms"] is not None]
    if len(shapes) < 2:
        return None
    name = document["gpu"]["name"] if document["gpu"] else document["cpu"]
    return {"device": name, "layers": document["layers"], "shapes": shapes}
