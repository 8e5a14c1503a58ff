"""What the bias that attention adds to its scores says."""

import onnx_ir as ir

ATTENTION_BIAS = 5  # position among MultiHeadAttention's inputs
_QUERIES = 2  # axis of (rows, heads, queries, keys)


def hides_padding_only(attention: ir.Node) -> bool:
    """Tell whether a MultiHeadAttention's bias is what `additive_mask` makes.

    It is the same for all queries then. One that differs between them hides more than padding:
    tokens outside a window, for one.
    """
    bias = unexpanded(attention.inputs[ATTENTION_BIAS])
    return bias is not None and bias.shape is not None and bias.shape[_QUERIES] == 1


def unexpanded(bias: ir.Value | None) -> ir.Value | None:
    """Return the bias before it was repeated to its full shape."""
    producer = bias.producer() if bias is not None else None
    return producer.inputs[0] if producer is not None and producer.op_type == "Expand" else bias
