"""The fp16 variant. `loadtest.bench.gpu` and `tests/serve/test_cuda.py` see it on a GPU."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto

from export.chain.segments import build_segment, variant
from export.chain.stages import Span
from export.kernels.gpu import suit_gpu
from export.precision.half import halve
from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel
from serve.bundle.loader import Bundle
from tests.export.support.chains import Chain
from tests.support.tiny import DEPTH, tiny_model


def graphs(bundle: Bundle) -> list[onnx.GraphProto]:
    return [onnx.load(path).graph for path in bundle.segment_paths("fp16")]


def types(values: list[onnx.ValueInfoProto]) -> dict[str, int]:
    return {value.name: value.type.tensor_type.elem_type for value in values}


def test_hidden_states_are_half_and_logits_full(half_bundle: Bundle) -> None:
    for index, graph in enumerate(graphs(half_bundle)):
        outputs = {"hidden_out": TensorProto.FLOAT16, "logits": TensorProto.FLOAT}
        assert types(graph.output) == outputs
        assert types(graph.input).get("hidden") == (TensorProto.FLOAT16 if index else None)


def test_layers_are_half_and_heads_full(half_bundle: Bundle) -> None:
    for graph in graphs(half_bundle):
        stored = Counter(t.data_type for t in graph.initializer if np.prod(t.dims) > 1)
        full = [t for t in graph.initializer if t.data_type == TensorProto.FLOAT and t.dims]
        assert all("heads" in tensor.name for tensor in full)
        assert stored[TensorProto.FLOAT16] > stored[TensorProto.FLOAT] > 0


def test_a_layer_is_seven_kernels(half_bundle: Bundle) -> None:
    for graph in graphs(half_bundle):
        found = Counter(node.op_type for node in graph.node)
        assert found["Attention"] == 1
        assert found["SkipLayerNormalization"] == 2
        assert found["BiasGelu"] == 1
        assert found["MatMul"] == 3 + 1, "one of them pools"
        assert not {"MultiHeadAttention", "Expand", "Sub", "Mul", "Sum"} & found.keys()
        norms = [node for node in graph.node if node.op_type == "SkipLayerNormalization"]
        assert all(len(node.output) == 1 for node in norms)


def test_every_exit_is_close_to_the_model(half_bundle: Bundle) -> None:
    parity = half_bundle.manifest.variants["fp16"].parity
    assert 1e-5 < parity.max_logit_error < 2e-2
    assert parity.label_agreement == 1.0


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_padding_and_mates_do_not_matter(pooling: str, tmp_path: Path) -> None:
    model = with_pooling(pooling)
    segment = build_segment(model, Span(0, DEPTH, DEPTH - 1))
    path = tmp_path / "half.onnx"
    ir.save(variant(segment, "fp16"), path)
    chain = Chain([path])
    ids = np.random.default_rng(0).integers(4, 200, (3, 12))
    mask = (np.arange(12) < np.array([[12], [5], [1]])).astype(np.int64)
    (together,) = chain.run(ids, mask)
    for row, length in enumerate((12, 5, 1)):
        (alone,) = chain.run(ids[[row], :length], mask[[row], :length])
        np.testing.assert_allclose(together.logits[row], alone.logits[0], atol=1e-2)


def test_a_filter_that_half_cannot_hold_stays_finite() -> None:
    segment = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[rows, 2] hidden) => (float[rows, 2] hidden_out, float[rows, 2] logits)
        <float[2] lowest = {-3.4028235e38, 2}>
        {
            hidden_out = Add(hidden, lowest)
            logits = Add(hidden_out, lowest)
        }
        """
    )
    half = halve(segment)
    assert half.graph.initializers["lowest.half"].const_value.numpy().tolist() == [-65504, 2]
    kept = half.graph.initializers["lowest"].const_value.numpy()
    assert kept[0] == np.float32(-3.4028235e38), "the head still adds the full one"


def test_attention_between_different_states_stays_as_it_is() -> None:
    segment = build_segment(tiny_model(), Span(0, 1, 0)).clone()
    attention = next(node for node in segment.graph if node.op_type == "MultiHeadAttention")
    attention.replace_input_with(1, attention.inputs[1].producer().inputs[0])
    suit_gpu(segment)
    found = Counter(node.op_type for node in segment.graph)
    assert (found["MultiHeadAttention"], found["Attention"]) == (1, 0)
    (bias,) = (n.inputs[5] for n in segment.graph if n.op_type == "MultiHeadAttention")
    assert bias.producer().op_type == "Expand", "CUDA wants a bias for every query"


def test_angles_stay_full() -> None:
    segment = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[tokens, 2] hidden) => (float[tokens, 2] hidden_out, float[tokens, 2] logits)
        <float[1] frequency = {0.7}, float[1] scale = {1.5}, float start = {499},
         float limit = {501}, float delta = {1}, int64[1] last = {1}>
        {
            positions = Range(start, limit, delta)
            column = Unsqueeze(positions, last)
            angles = Mul(column, frequency)
            turned = Cos(angles)
            scaled = Mul(turned, scale)
            hidden_out = Mul(hidden, scaled)
            logits = Identity(hidden_out)
        }
        """
    )
    onnx_model = ir.to_proto(segment)
    segment = ir.from_proto(onnx.shape_inference.infer_shapes(onnx_model))
    session = ort.InferenceSession(ir.to_proto(halve(segment)).SerializeToString())
    found = session.run(["hidden_out"], {"hidden": np.ones((2, 2), np.float16)})[0]
    assert found.dtype == np.float16
    exact = 1.5 * np.cos(np.array([499, 500]) * 0.7)
    np.testing.assert_allclose(found[:, 0], exact, atol=2e-3)


def with_pooling(pooling: str) -> MultiExitModel:
    head = HeadConfig(pooling=pooling)
    exits = ExitConfig(exits=tuple(range(1, DEPTH + 1)), head=head)
    return MultiExitModel(tiny_model().backbone.encoder, exits).eval()


def test_tokens_are_counted_in_full_precision(half_bundle: Bundle) -> None:
    for graph in graphs(half_bundle):
        made = {name: node for node in graph.node for name in node.output}
        (attention,) = (node for node in graph.node if node.op_type == "Attention")
        whole = made[attention.input[3]]
        added_up = made[whole.input[0]]
        counted = made[added_up.input[0]]
        found = [node.op_type for node in (counted, added_up, whole)]
        assert found == ["Cast", "ReduceSum", "Cast"]
        told = [onnx.helper.get_node_attr_value(node, "to") for node in (counted, whole)]
        assert told == [TensorProto.FLOAT, TensorProto.INT32]
