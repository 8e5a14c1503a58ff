import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from export.precision.quantize import per_column, quantize
from serve.bundle.loader import Bundle
from tests.export.conftest import OpenChain
from tests.export.support.graphs import open_graph


def test_scales_are_per_column_and_reach_the_largest_weight() -> None:
    weights = np.array([[1, -50, 0], [-2, 25, 0]], np.float32)
    codes, scales = per_column(weights)
    assert codes.dtype == np.int8
    np.testing.assert_array_equal(codes, [[64, -127, 0], [-127, 64, 0]])
    np.testing.assert_allclose(codes * scales, weights, atol=0.21)


def test_layers_poolers_and_words_are_int8_and_classifiers_fp32(bundle: Bundle) -> None:
    for index, path in enumerate(bundle.segment_paths("int8")):
        graph = onnx.load(path).graph
        tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        bytes_of = {np.dtype(np.int8): 0, np.dtype(np.float32): 0}
        for array in tensors.values():
            bytes_of[array.dtype] = bytes_of.get(array.dtype, 0) + array.size
        layer = 4 * 32 * 32 + 2 * 32 * 64
        pooler = 32 * 32
        words = 200 * 32
        assert bytes_of[np.dtype(np.int8)] == layer + pooler + (0 if index else words)
        assert any(name.endswith("classifier.weight") for name in tensors)
        assert bytes_of[np.dtype(np.float32)] < layer / 2, "no fp32 weights are left behind"
        products = [node for node in graph.node if node.op_type == "MatMulIntegerToFloat"]
        assert len(products) == 7


def test_the_fp32_segment_is_left_as_it_was(bundle: Bundle) -> None:
    segment = ir.load(bundle.segment_paths("fp32")[1])
    before = ir.to_proto(segment).SerializeToString(deterministic=True)
    quantize(segment)
    assert ir.to_proto(segment).SerializeToString(deterministic=True) == before


def test_q_k_and_v_share_one_quantization(bundle: Bundle) -> None:
    graph = onnx.load(bundle.segment_paths("int8")[1]).graph
    assert sum(node.op_type == "QuantizeLinear" for node in graph.node) == 5


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu"])
@pytest.mark.parametrize("highest", [-3.0, -0.7, 0.01, 2.0, 40.0])
def test_gelu_keeps_its_values_on_both_sides_of_zero(highest: float, operator: str) -> None:
    model = activated_product(operator)
    # GELU is lowest at -0.75.
    activation = np.array([-0.75] * 15 + [highest], np.float32).reshape(1, 1, 16)
    exact, coarse = (run(m, activation) for m in (model, quantize(model)))
    # One code is 1/223 of the largest value, and of at least 1.2; weights are as coarse again.
    np.testing.assert_allclose(coarse, exact, rtol=0.02, atol=0.01)


@pytest.mark.parametrize("highest", [0.0, 0.01, 40.0])
def test_relu_has_all_codes_above_zero(highest: float) -> None:
    model = activated_product("Relu")
    quantized = quantize(model)
    steps = [v.const_value for n, v in quantized.graph.initializers.items() if "code_step" in n]
    assert [float(step.numpy()) for step in steps] == pytest.approx([1 / 255])
    activation = np.array([-3.0] * 8 + [highest, highest / 3] * 4, np.float32).reshape(1, 1, 16)
    exact, coarse = (run(m, activation) for m in (model, quantized))
    np.testing.assert_allclose(coarse, exact, rtol=0.01)


def activated_product(operator: str) -> ir.Model:
    shape = onnx.helper.make_tensor_value_info
    gelu = {"inputs": ["x", "bias"], "domain": "com.microsoft"}
    activation = {"inputs": ["x"]} if operator == "Relu" else gelu
    nodes = [
        onnx.helper.make_node(operator, outputs=["activated"], **activation),
        onnx.helper.make_node("MatMul", ["activated", "weights"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "activated",
        [shape("x", onnx.TensorProto.FLOAT, ["rows", "tokens", 16])],
        [shape("y", onnx.TensorProto.FLOAT, ["rows", "tokens", 2])],
        [
            numpy_helper.from_array(np.zeros(16, np.float32), "bias"),
            numpy_helper.from_array(np.full((16, 2), 1 / 16, np.float32), "weights"),
        ],
        value_info=[shape("activated", onnx.TensorProto.FLOAT, ["rows", "tokens", 16])],
    )
    opsets = [onnx.helper.make_opsetid(*o) for o in (("", 18), ("com.microsoft", 1))]
    return ir.from_proto(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10))


def run(model: ir.Model, activation: np.ndarray) -> np.ndarray:
    return open_graph(model).run(None, {"x": activation})[0]


@pytest.mark.parametrize("row", ["zeros", "tiny", "huge", "spike"])
def test_odd_rows_stay_finite_and_near_fp32(open_chain: OpenChain, row: str) -> None:
    hidden = np.random.default_rng(0).standard_normal((2, 6, 32)).astype(np.float32)
    hidden[0] *= {"zeros": 0, "tiny": 1e-30, "huge": 1e15, "spike": 1}[row]
    if row == "spike":
        hidden[0, 3, 7] = 300
    keep, mask = np.arange(2), np.ones((2, 6), np.int64)
    exact = open_chain("fp32").advance(1, hidden, keep, mask)
    coarse = open_chain("int8").advance(1, hidden, keep, mask)
    assert np.isfinite(coarse.hidden).all()
    assert np.isfinite(coarse.logits).all()
    # Layer norms make the hidden states of unit size.
    assert np.sqrt(np.mean((coarse.hidden - exact.hidden) ** 2)) < 0.2


def test_int8_answers_like_fp32(open_chain: OpenChain) -> None:
    generator = np.random.default_rng(0)
    ids = generator.integers(4, 200, (200, 16))
    mask = np.ones_like(ids)
    exact, coarse = (open_chain(precision).run(ids, mask) for precision in ("fp32", "int8"))
    for one, other in zip(exact, coarse, strict=True):
        agreement = np.mean(one.logits.argmax(1) == other.logits.argmax(1))
        assert agreement >= 0.97


def test_a_loud_mate_does_not_coarsen_a_quiet_row(open_chain: OpenChain) -> None:
    chain = open_chain("int8")
    generator = np.random.default_rng(1)
    hidden = generator.standard_normal((2, 8, 32)).astype(np.float32)
    hidden[1] *= 1e4
    keep, mask = np.arange(2), np.ones((2, 8), np.int64)
    together = chain.advance(1, hidden, keep, mask)
    alone = chain.advance(1, hidden[:1], keep[:1], mask[:1])
    np.testing.assert_array_equal(together.hidden[0], alone.hidden[0])
