"""The fp16 variant. `tests/serve/runtime/test_cuda_runner.py` sees it on a GPU."""

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto

from export.precision.half import halve
from serve.bundle.loader import Bundle
from tests.export.support.graphs import open_graph


def graphs(bundle: Bundle) -> list[onnx.GraphProto]:
    return [onnx.load(path).graph for path in bundle.segment_paths("fp16")]


def heads(bundle: Bundle) -> list[onnx.GraphProto]:
    return [onnx.load(path).graph for path in bundle.head_paths("fp16")]


def types(values: list[onnx.ValueInfoProto]) -> dict[str, int]:
    return {value.name: value.type.tensor_type.elem_type for value in values}


def test_hidden_states_are_half_and_logits_full(half_bundle: Bundle) -> None:
    for index, (body, head) in enumerate(zip(graphs(half_bundle), heads(half_bundle), strict=True)):
        assert types(body.output) == {"hidden_out": TensorProto.FLOAT16}
        assert types(body.input).get("hidden") == (TensorProto.FLOAT16 if index else None)
        assert types(head.input) == dict.fromkeys(("hidden", "shares"), TensorProto.FLOAT16)
        assert types(head.output) == {"logits": TensorProto.FLOAT}


def test_layers_are_half_and_heads_full(half_bundle: Bundle) -> None:
    for graph in graphs(half_bundle):
        assert not [t.name for t in graph.initializer if t.data_type == TensorProto.FLOAT]
    for graph in heads(half_bundle):
        stored = Counter(t.data_type for t in graph.initializer)
        assert stored[TensorProto.FLOAT] == 4, "weights and biases of pooler and classifier"
        assert not stored[TensorProto.FLOAT16]


def test_only_pooled_vectors_are_cast(half_bundle: Bundle) -> None:
    for graph in heads(half_bundle):
        (pooled,) = (node for node in graph.node if node.op_type == "FusedMatMul")
        (cast,) = (node for node in graph.node if node.op_type == "Cast")
        assert sorted(pooled.input) == ["hidden", "shares"]
        assert list(cast.input) == list(pooled.output)


def test_a_mean_of_the_largest_values_does_not_overflow(half_bundle: Bundle) -> None:
    session = open_graph(half_bundle.head_paths("fp16")[0])
    hidden = np.full((1, 64, 32), 60000, np.float16)
    shares = np.full((1, 64, 1), 1 / 64, np.float16)
    (logits,) = session.run(None, {"hidden": hidden, "shares": shares})
    (first,) = session.run(None, {"hidden": hidden[:, :1], "shares": shares[:, :1] * 64})
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(logits, first, rtol=1e-3)


def test_a_filter_that_half_cannot_hold_stays_finite() -> None:
    segment = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[rows, 2] hidden) => (float[rows, 2] hidden_out)
        <float[2] lowest = {-3.4028235e38, 2}>
        {
            hidden_out = Add(hidden, lowest)
        }
        """
    )
    half = halve(segment)
    assert half.graph.initializers["lowest.half"].const_value.numpy().tolist() == [-65504, 2]


def test_angles_stay_full() -> None:
    segment = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[tokens, 2] hidden) => (float[tokens, 2] hidden_out)
        <float[1] frequency = {0.7}, float[1] scale = {1.5}, float start = {499},
         float limit = {501}, float delta = {1}, int64[1] last = {1}>
        {
            positions = Range(start, limit, delta)
            column = Unsqueeze(positions, last)
            angles = Mul(column, frequency)
            turned = Cos(angles)
            scaled = Mul(turned, scale)
            hidden_out = Mul(hidden, scaled)
        }
        """
    )
    onnx_model = ir.to_proto(segment)
    segment = ir.from_proto(onnx.shape_inference.infer_shapes(onnx_model))
    session = open_graph(halve(segment))
    found = session.run(["hidden_out"], {"hidden": np.ones((2, 2), np.float16)})[0]
    assert found.dtype == np.float16
    exact = 1.5 * np.cos(np.array([499, 500]) * 0.7)
    np.testing.assert_allclose(found[:, 0], exact, atol=2e-3)
