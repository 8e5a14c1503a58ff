"""The one graph is the model that the segments are."""

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from export.chain.segments import build_segment, variant
from export.chain.stages import Span
from loadtest.bench.chain import each_segment, run_to_exit
from loadtest.bench.inputs import Shape, random_inputs
from loadtest.bench.loaded_bundle import load
from loadtest.bench.one_graph import join
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.classifier.variant import model_shape
from tests.support.tiny import DEPTH, tiny_model

precisions = pytest.mark.parametrize("precision", ["fp32", "int8"])


@pytest.fixture(scope="module")
def direct() -> ir.Model:
    """Return the model traced in one go, with the last head alone."""
    return build_segment(tiny_model(), Span(start=0, stop=DEPTH, head=DEPTH - 1))


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(f"{node.domain}:{node.op_type}" for node in model.graph.node)


def matrices(model: onnx.ModelProto) -> Counter[tuple[int, ...]]:
    return Counter(tuple(t.dims) for t in model.graph.initializer if len(t.dims) > 1)


def joined(bundle: Bundle, precision: Precision) -> onnx.ModelProto:
    return join([onnx.load(path) for path in bundle.segment_paths(precision)])


@precisions
def test_the_one_graph_is_what_a_direct_export_gives(
    bundle: Bundle, direct: ir.Model, precision: Precision
) -> None:
    expected = ir.to_proto(variant(direct, precision))
    found = joined(bundle, precision)
    assert operators(found) == operators(expected)
    assert matrices(found) == matrices(expected)


def test_the_one_graph_takes_ids_and_gives_logits_alone(bundle: Bundle) -> None:
    graph = joined(bundle, "fp32").graph
    names = ["input_ids", "attention_mask", "token_type_ids"]
    assert [value.name for value in graph.input] == names
    assert len(graph.output) == 1
    context = onnx.checker.C.CheckerContext()
    context.ir_version = 10
    context.opset_imports = {"": 18, "com.microsoft": 1}
    onnx.checker.check_graph(graph, context)


@precisions
def test_all_forms_of_the_model_answer_alike(bundle: Bundle, precision: Precision) -> None:
    inputs = random_inputs(Shape(3, 9), vocabulary=200)
    loaded = load(bundle, precision, num_threads=2)
    steps = list(each_segment(loaded.chain, inputs))
    assert (len(steps), loaded.depth, loaded.shape) == (DEPTH, DEPTH, model_shape(bundle.manifest))
    for one_graph in loaded.one_graphs:
        np.testing.assert_array_equal(one_graph.run(inputs), steps[-1].logits)
    for last, step in enumerate(steps):
        np.testing.assert_array_equal(run_to_exit(loaded.chain, inputs, last).logits, step.logits)
