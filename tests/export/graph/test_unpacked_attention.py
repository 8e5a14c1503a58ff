"""Attention with merged products is taken apart and says the same."""

from collections import Counter

import numpy as np
import onnx_ir as ir

from export.graph.unpacked_attention import unpack_attention
from tests.export.support.graphs import open_graph

# Two heads of width 2. The fusion joins large weights by a node, as here.
MODEL = """
    <ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
    attention (float[rows, tokens, 4] hidden, float[1, 2, tokens, tokens] bias)
    => (float[rows, tokens, 4] attended)
    <float[4, 4] q = {{{q}}}, float[4, 4] k = {{{k}}}, float[4, 4] v = {{{v}}},
     float[12] offsets = {{{offsets}}}>
    {{ weights = Concat <axis = 1> (q, k, v)
       attended = com.microsoft.Attention <num_heads = 2, scale = 0.9>
         (hidden, weights, offsets, , , bias) }}
"""


def model() -> ir.Model:
    generator = np.random.default_rng(0)
    sizes = {"q": 16, "k": 16, "v": 16, "offsets": 12}
    numbers = {name: generator.standard_normal(size) for name, size in sizes.items()}
    text = {name: ", ".join(f"{value:.4f}" for value in each) for name, each in numbers.items()}
    return ir.from_onnx_text(MODEL.format(**text))


def run(given: ir.Model) -> np.ndarray:
    generator = np.random.default_rng(1)
    shapes = {"hidden": (3, 5, 4), "bias": (1, 2, 5, 5)}
    inputs = {n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    return open_graph(given).run(None, inputs)[0]


def test_merged_products_become_three_and_scale_and_bias_stay() -> None:
    found = model()
    unpack_attention(found)
    assert Counter(node.op_type for node in found.graph) == {
        "MatMul": 3,
        "Add": 3,
        "MultiHeadAttention": 1,
    }
    np.testing.assert_allclose(run(found), run(model()), atol=1e-6)
