"""The bias that attention adds to its scores."""

from typing import NamedTuple

import onnx_ir as ir

KEY_PADDING_MASK = 4  # position among the inputs of MultiHeadAttention
ATTENTION_BIAS = 5  # position among the inputs of MultiHeadAttention and of Attention
_QUERIES = 2  # axis of (rows, heads, queries, keys)


class Bias(NamedTuple):
    """A bias in two parts.

    Attributes:
        hides_padding: whether `additive_mask` is a part of it.
        rest: what else is added: a bias by position, or a mask that also hides other tokens.
    """

    hides_padding: bool
    rest: ir.Value | None


def split_bias(attention: ir.Node) -> Bias:
    """Return the parts of a MultiHeadAttention's bias."""
    bias = unexpanded(attention.inputs[ATTENTION_BIAS])
    if bias is None or _is_padding_mask(bias):
        return Bias(bias is not None, None)
    added = bias.producer()
    if added is not None and added.op_type == "Add":
        mask, rest = added.inputs
        if _is_padding_mask(mask):
            return Bias(True, rest)
    return Bias(False, bias)


def unexpanded(bias: ir.Value | None) -> ir.Value | None:
    """Return the bias before it was expanded to its full shape."""
    producer = bias.producer() if bias is not None else None
    return producer.inputs[0] if producer is not None and producer.op_type == "Expand" else bias


def _is_padding_mask(bias: ir.Value | None) -> bool:
    """Return whether a bias is the same for all queries: it then comes from `additive_mask`."""
    return bias is not None and bias.shape is not None and bias.shape[_QUERIES] == 1
