"""Attention with separate products for queries, keys and values."""

import onnx_ir as ir

from export.graph.constant_folding import fold_weights
from export.graph.splice import CONTRIB, Splice

_KEPT = ("num_heads", "scale")


def unpack_attention(model: ir.Model) -> None:
    """Replace every Attention by three products, three sums and a MultiHeadAttention. In place.

    The fusion merges the products if the bias differs between queries. Separate products can be
    quantized to int8, and `export.kernels` decides where they are merged.
    """
    attentions = [n for n in model.graph if n.op_type == "Attention"]
    if attentions:
        fold_weights(model)  # large weights are only joined by a node
    for node in attentions:
        source, weights, biases, _mask, _past, added = node.inputs
        splice = Splice(model, node)
        parts = [
            splice.op("Add", splice.op("MatMul", source, weight), bias)
            for weight, bias in zip(_thirds(splice, weights), _thirds(splice, biases), strict=True)
        ]
        attributes = {n: node.attributes[n].value for n in _KEPT if n in node.attributes}
        attended = splice.op(
            "MultiHeadAttention", *parts, None, None, added, attributes=attributes, domain=CONTRIB
        )
        splice.replace(attended)


def _thirds(splice: Splice, packed: ir.Value | None) -> list[ir.Value]:
    """Return the constants for queries, keys and values, which are as wide as each other."""
    assert packed is not None
    assert packed.const_value is not None
    array = packed.const_value.numpy()
    width = array.shape[-1] // 3
    return [
        splice.constant(f"{packed.name}.{i}", array[..., i * width : (i + 1) * width].copy())
        for i in range(3)
    ]
