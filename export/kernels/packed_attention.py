"""One product for queries, keys and values, inside ONNX Runtime's Attention operator."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from export.graph.splice import CONTRIB, Splice

_KEPT = ("num_heads", "scale", "mask_filter_value")


class _Linear(NamedTuple):
    """A product with constant weights and a constant bias.

    Attributes:
        source: the multiplied value.
        weights: (inputs, outputs).
        bias: (outputs,).
    """

    source: ir.Value
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]


class Added(NamedTuple):
    """What attention adds to its scores.

    Attributes:
        mask: (rows, tokens) mask, or one-dimensional lengths; None for none.
        bias: (1 or rows, heads, queries, keys); None for none.
    """

    mask: ir.Value | None
    bias: ir.Value | None = None


def pack(model: ir.Model, added: Mapping[ir.Node, Added]) -> None:
    """Replace three products, three sums and a MultiHeadAttention by one Attention. In place.

    Nodes for which this is not possible stay unchanged.

    Args:
        model: the graph.
        added: mask and bias for Attention, by the MultiHeadAttention node to replace.
    """
    for node, (mask, bias) in added.items():
        linear = _packed(node)
        if linear is None:
            continue
        splice = Splice(model, node)
        attended = splice.op(
            "Attention",
            linear.source,
            splice.constant("weights", linear.weights),
            splice.constant("biases", linear.bias),
            mask,
            *([None, bias] if bias is not None else []),
            attributes={n: node.attributes[n].value for n in _KEPT if n in node.attributes},
            domain=CONTRIB,
        )
        splice.replace(attended)


def _packed(attention: ir.Node) -> _Linear | None:
    """Return one Linear for a MultiHeadAttention's queries, keys and values.

    None if there is no such Linear: different sources, rotary positions, or no bias.
    """
    linears = [_linear(value) for value in attention.inputs[:3]]
    if None in linears:
        return None
    sources, weights, biases = zip(*linears, strict=True)
    if len(set(sources)) > 1:
        return None
    return _Linear(sources[0], np.concatenate(weights, axis=1), np.concatenate(biases))


def _linear(value: ir.Value | None) -> _Linear | None:
    """Return the Linear that computes a value, or None."""
    added = value.producer() if value is not None else None
    if added is None or added.op_type != "Add":
        return None
    product, bias = added.inputs
    node = product.producer() if product is not None else None
    if node is None or node.op_type != "MatMul":
        return None
    source, weights = node.inputs
    weight, offset = _array(weights), _array(bias)
    if source is None or weight is None or offset is None:
        return None
    return _Linear(source, weight, offset)


def _array(value: ir.Value | None) -> NDArray[np.float32] | None:
    """Return a constant's value."""
    constant = value.const_value if value is not None else None
    return constant.numpy() if constant is not None else None
