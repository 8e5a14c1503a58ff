import numpy as np
import onnx

from serve.bundle.loader import Bundle
from tests.export.conftest import OpenChain
from tests.export.support.graphs import ops


def test_each_layer_runs_fused_operators(bundle: Bundle) -> None:
    for index in range(4):
        found = ops(bundle, "fp32", index)
        assert found["Attention"] == found["BiasGelu"] == 1
        assert found["LayerNormalization"] == (2 if index else 3), "and the embeddings' own"
        assert found["Sum"] == (2 if index else 3), "and the embeddings' own"
        assert found["MatMul"] == 3, "queries, keys and values are Attention's"
        assert found["Add"] == 0
        assert found["Gather"] == (1 if index else 2), "no positions, they are counted"


def test_int8_multiplies_queries_keys_and_values_itself(bundle: Bundle) -> None:
    found = ops(bundle, "int8", 1)
    assert (found["MultiHeadAttention"], found["Attention"]) == (1, 0)


def test_nothing_of_the_unfused_graph_is_left(bundle: Bundle) -> None:
    for index in range(4):
        found = ops(bundle, "fp32", index)
        left = {"Softmax", "Erf", "Transpose", "Expand", "ReduceMean", "Sqrt", "Where"}
        assert not left & found.keys()
        # On the CPU it is slower than the norm and the sum apart (cpu_kernels).
        assert "SkipLayerNormalization" not in found


def test_only_later_segments_choose_rows(bundle: Bundle) -> None:
    for index in range(4):
        graph = onnx.load(bundle.segment_paths("fp32")[index]).graph
        first = [node.op_type for node in graph.node if "keep" in node.input]
        assert first == (["Gather"] if index else [])


def test_a_later_segment_takes_the_rows_and_the_width_asked_for(open_chain: OpenChain) -> None:
    chain = open_chain("fp32")
    generator = np.random.default_rng(0)
    hidden = generator.standard_normal((3, 9, 32)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    chosen = chain.advance(1, hidden, np.array([2, 0]), mask)
    before = np.ascontiguousarray(hidden[[2, 0], :5])
    same = chain.advance(1, before, np.array([0, 1]), mask)
    np.testing.assert_array_equal(chosen.hidden, same.hidden)
    np.testing.assert_array_equal(chosen.logits, same.logits)
