"""The bias that attention adds to its scores."""

import onnx_ir as ir

ATTENTION_BIAS = 5  # position among MultiHeadAttention's inputs
_QUERIES = 2  # axis of (rows, heads, queries, keys)


def hides_padding_only(attention: ir.Node) -> bool:
    """Return whether a MultiHeadAttention's bias comes from `additive_mask` alone.

    Such a bias is the same for all queries. A bias that differs between queries hides more than
    padding, for example tokens outside a window.
    """
    bias = unexpanded(attention.inputs[ATTENTION_BIAS])
    return bias is not None and bias.shape is not None and bias.shape[_QUERIES] == 1


def unexpanded(bias: ir.Value | None) -> ir.Value | None:
    """Return the bias before it was expanded to its full shape."""
    producer = bias.producer() if bias is not None else None
    return producer.inputs[0] if producer is not None and producer.op_type == "Expand" else bias
