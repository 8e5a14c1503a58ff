"""Rewrites of a fused graph for the kernels of ONNX Runtime's CUDA provider."""

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes.common import RemoveUnusedNodesPass

from export.errors import ExportFailed
from export.splice import CONTRIB, Splice
from serve.manifest import ATTENTION_MASK


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
    """
    graph = model.graph
    attentions = [n for n in graph if n.op_type == "MultiHeadAttention"]
    if not attentions:
        return
    lengths = _lengths(model)
    for node in attentions:
        splice = Splice(model, node)
        sources, weights, biases = zip(
            *(_projection(value) for value in node.inputs[:3]), strict=True
        )
        if len(set(sources)) > 1:
            raise ExportFailed("attention between different hidden states has no fp16 variant")
        attributes = {"num_heads": node.attributes["num_heads"].as_int()}
        if "scale" in node.attributes:
            attributes["scale"] = node.attributes["scale"].as_float()
        attended = splice.op(
            "Attention",
            sources[0],
            splice.constant("weights", np.concatenate(weights, axis=1)),
            splice.constant("biases", np.concatenate(biases)),
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


def _projection(
    value: ir.Value | None,
) -> tuple[ir.Value, NDArray[np.float32], NDArray[np.float32]]:
    """Return hidden states, weights (inputs, outputs) and bias of a Linear."""
    added = value.producer() if value is not None else None
    if added is not None and added.op_type == "Add":
        product, bias = added.inputs
        node = product.producer() if product is not None else None
        if node is not None and node.op_type == "MatMul" and bias is not None:
            source, weights = node.inputs
            if source is not None and weights is not None and weights.const_value is not None:
                return source, weights.const_value.numpy(), _array(bias)
    raise ExportFailed(
        "the model's attention has no fp16 variant: its inputs are not Linear layers"
    )


def _array(value: ir.Value) -> NDArray[np.float32]:
    if value.const_value is None:
        raise ExportFailed(f"{value.name} is no constant")
    return value.const_value.numpy()
