"""Rewriting a fused graph for the kernels of ONNX Runtime's CUDA provider."""

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from export.graph.splice import CONTRIB, Splice
from export.kernels.attention_bias import split_bias
from export.kernels.packed_attention import Added, pack
from serve.bundle.manifest import ATTENTION_MASK


def suit_gpu(model: ir.Model) -> None:
    """Reduce the number of kernels, which decides a GPU's time at small batches. In place.

    SkipLayerNormalization stays, unlike on the CPU: CUDA runs it as one kernel.
    """
    # CUDA sums integers with cuDNN and two conversions, but floats with one kernel.
    pack_attention(model, counted_in=ir.DataType.FLOAT)
    drop_unread_sums(model)
    RemoveUnusedNodesPass()(model)


def pack_attention(model: ir.Model, counted_in: ir.DataType = ir.DataType.INT32) -> None:
    """Merge the products for queries, keys and values into attention. In place.

    Only attention whose bias hides padding and nothing else is rewritten. It gets lengths instead
    of a mask; padding is on the right, so both have the same meaning. ONNX Runtime chooses its
    fused fp16 kernels only with lengths, on devices before Hopper. A length cannot overflow,
    either. A bias by position stays.

    Args:
        model: a fused graph.
        counted_in: number type in which tokens are counted.
    """
    attentions = [n for n in model.graph if n.op_type == "MultiHeadAttention"]
    biases = {node: split_bias(node) for node in attentions}
    found = {node: bias.rest for node, bias in biases.items() if bias.hides_padding}
    if found:
        lengths = _lengths(model, counted_in)
        pack(model, {node: Added(lengths, bias) for node, bias in found.items()})


def drop_unread_sums(model: ir.Model) -> None:
    """Drop SkipLayerNormalization's unused outputs, which would be computed and written."""
    for node in [n for n in model.graph if n.op_type == "SkipLayerNormalization"]:
        if any(output.uses() for output in node.outputs[1:]):
            continue
        splice = Splice(model, node)
        attributes = {"epsilon": node.attributes["epsilon"].as_float()}
        normal = splice.op(node.op_type, *node.inputs, attributes=attributes, domain=CONTRIB)
        splice.replace(normal)


def _lengths(model: ir.Model, counted_in: ir.DataType) -> ir.Value:
    """Return (rows,) int32, the number of real tokens; its nodes are the graph's first."""
    graph = model.graph
    mask = next(value for value in graph.inputs if value.name == ATTENTION_MASK)
    splice = Splice(model, graph[0])
    real = splice.op("Cast", mask, attributes={"to": counted_in.value})
    axis = splice.constant("lengths.axis", np.array([1], np.int64))
    lengths = splice.op("ReduceSum", real, axis, attributes={"keepdims": 0})
    if counted_in != ir.DataType.INT32:
        lengths = splice.op("Cast", lengths, attributes={"to": ir.DataType.INT32.value})
    splice.insert()
    return lengths
