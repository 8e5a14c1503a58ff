"""Rewriting a fused graph for the kernels of ONNX Runtime's CUDA provider.

The graphs have no attention mask. The host gives lengths to attention, and each token's share of a
mean to exit heads, so that no segment counts tokens again.
"""

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from export.checks.contract import ROWS, TOKENS
from export.graph.splice import CONTRIB, Splice
from export.kernels.attention_bias import ATTENTION_BIAS, KEY_PADDING_MASK, Bias, split_bias
from export.kernels.packed_attention import Added, pack
from export.kernels.pooling import fix_order_of_pooling, take_shares
from export.kernels.skip_norm import split_norm
from serve.bundle.manifest import ATTENTION_LENGTHS, LENGTHS, SHARES

# The memory-efficient kernel takes heads whose width is a multiple of this.
_HEAD_STEP = 8


def suit_gpu(model: ir.Model) -> None:
    """Reduce the number of kernels, which decides a GPU's time at small batches. In place.

    SkipLayerNormalization stays, unlike on the CPU: CUDA runs it as one kernel. The attention mask
    stays an input only where something else than attention and means over tokens reads it.
    """
    tell_lengths(model)
    fix_order_of_pooling(model)
    take_shares(model, _input(model, SHARES, ir.DataType.FLOAT, (ROWS, TOKENS, 1)))
    drop_unread_sums(model)
    RemoveUnusedNodesPass()(model)


def tell_lengths(model: ir.Model) -> None:
    """Give attention lengths instead of a bias computed from the mask. In place.

    Padding is on the right, so both have the same meaning; a length cannot overflow. Products for
    queries, keys and values are merged into attention where they are of one source. A bias by
    position stays, and so does one that hides more than padding.

    ONNX Runtime's memory-efficient kernel wants lengths and where texts begin and end; the six
    launches of its plain one go by lengths alone. The first takes a bias only for some numbers of
    tokens, and heads of some widths. Where it might not, attention is given lengths alone, because
    the plain kernel reads the longer form wrongly.
    """
    attentions = [n for n in model.graph if n.op_type == "MultiHeadAttention"]
    biases = {node: split_bias(node) for node in attentions}
    padded = {node: bias for node, bias in biases.items() if bias.hides_padding}
    if not padded:
        return
    alone = _input(model, LENGTHS, ir.DataType.INT32, (ROWS,))
    placed = _input(model, ATTENTION_LENGTHS, ir.DataType.INT32, ("lengths_and_starts",))
    told = {node: placed if _is_plain(node, bias) else alone for node, bias in padded.items()}
    pack(model, {node: Added(told[node], bias.rest) for node, bias in padded.items()})
    for node in [n for n in model.graph if told.get(n) is placed]:
        node.replace_input_with(KEY_PADDING_MASK, placed)
        node.replace_input_with(ATTENTION_BIAS, None)


def drop_unread_sums(model: ir.Model) -> None:
    """Drop SkipLayerNormalization's unused outputs, which would be computed and written.

    Where the sum is what leaves the segment, the norm is the exit head's and becomes a node alone.
    """
    for node in [n for n in model.graph if n.op_type == "SkipLayerNormalization"]:
        if any(output.is_graph_output() for output in node.outputs[1:]):
            split_norm(model, node)
            continue
        if any(output.uses() for output in node.outputs[1:]):
            continue
        splice = Splice(model, node)
        attributes = {"epsilon": node.attributes["epsilon"].as_float()}
        normal = splice.op(node.op_type, *node.inputs, attributes=attributes, domain=CONTRIB)
        splice.replace(normal)


def _is_plain(attention: ir.Node, bias: Bias) -> bool:
    """Return whether the memory-efficient kernel takes this attention for any batch."""
    width = _width(attention)
    if bias.rest is not None or width is None:
        return False
    return width // attention.attributes["num_heads"].as_int() % _HEAD_STEP == 0


def _width(attention: ir.Node) -> int | None:
    """Return the width of all heads together, if some value near attention tells it."""
    for value in (*attention.outputs, *attention.inputs[:3]):
        width = value.shape[-1] if value is not None and value.shape is not None else None
        if isinstance(width, int):
            return width
    return None


def _input(
    model: ir.Model, name: str, element: ir.DataType, axes: tuple[str | int, ...]
) -> ir.Value:
    value = ir.Value(name=name, shape=ir.Shape(axes), type=ir.TensorType(element))
    model.graph.inputs.append(value)
    return value
