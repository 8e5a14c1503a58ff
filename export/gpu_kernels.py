"""Rewrites of a fused graph for the kernels of ONNX Runtime's CUDA provider."""

from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes.common import RemoveUnusedNodesPass

from export.attention_bias import hides_padding_only
from export.splice import CONTRIB, Splice
from serve.manifest import ATTENTION_MASK


class _Linear(NamedTuple):
    """A product with constant weights and a constant bias.

    Attributes:
        source: what is multiplied.
        weights: (inputs, outputs).
        bias: (outputs,).
    """

    source: ir.Value
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]


def suit_gpu(model: ir.Model) -> None:
    """Leave few, large kernels: at small waves their number is what a GPU's time goes into.

    SkipLayerNormalization stays: what is slow on the CPU is one kernel here. In place.
    """
    pack_attention(model)
    drop_unread_sums(model)
    RemoveUnusedNodesPass()(model)


def pack_attention(model: ir.Model) -> None:
    """Make of three products, three sums and MultiHeadAttention one Attention operator.

    It is told lengths instead of a mask. Padding is on the right, so they say the same; and only
    then does ONNX Runtime choose its fused fp16 kernels. A length cannot overflow, either.
    Attention that is not of this kind stays as it is: local, rotary, or between different states.
    """
    packed = {n: _packed(n) for n in model.graph if n.op_type == "MultiHeadAttention"}
    found = {node: linear for node, linear in packed.items() if linear is not None}
    lengths = _lengths(model) if found else None
    for node, (source, weights, biases) in found.items():
        splice = Splice(model, node)
        attributes = {"num_heads": node.attributes["num_heads"].as_int()}
        if "scale" in node.attributes:
            attributes["scale"] = node.attributes["scale"].as_float()
        attended = splice.op(
            "Attention",
            source,
            splice.constant("weights", weights),
            splice.constant("biases", biases),
            lengths,
            attributes=attributes,
            domain=CONTRIB,
        )
        splice.replace(attended)


def drop_unread_sums(model: ir.Model) -> None:
    """Drop SkipLayerNormalization's further outputs, which would be computed and written."""
    for node in [n for n in model.graph if n.op_type == "SkipLayerNormalization"]:
        if any(output.uses() for output in node.outputs[1:]):
            continue
        splice = Splice(model, node)
        attributes = {"epsilon": node.attributes["epsilon"].as_float()}
        normal = splice.op(node.op_type, *node.inputs, attributes=attributes, domain=CONTRIB)
        splice.replace(normal)


def _lengths(model: ir.Model) -> ir.Value:
    """Return (rows,) int32, the number of real tokens, computed first thing in the graph."""
    graph = model.graph
    mask = next(value for value in graph.inputs if value.name == ATTENTION_MASK)
    splice = Splice(model, graph[0])
    real = splice.op("Cast", mask, attributes={"to": ir.DataType.INT32.value})
    axis = splice.constant("lengths.axis", np.array([1], np.int64))
    lengths = splice.op("ReduceSum", real, axis, attributes={"keepdims": 0})
    splice.insert()
    return lengths


def _packed(attention: ir.Node) -> _Linear | None:
    """Return one Linear for queries, keys and values, or None if there can be none."""
    linears = [_linear(value) for value in attention.inputs[:3]]
    if None in linears or not hides_padding_only(attention):
        return None
    sources, weights, biases = zip(*linears, strict=True)
    if len(set(sources)) > 1:
        return None
    return _Linear(sources[0], np.concatenate(weights, axis=1), np.concatenate(biases))


def _linear(value: ir.Value | None) -> _Linear | None:
    """Return the Linear that a value is the result of, if it is."""
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
