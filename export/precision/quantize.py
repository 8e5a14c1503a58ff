"""int8 for CPUs with VNNI: one scale per token, so that rows of a batch do not affect each other.

ONNX Runtime's dynamic quantization takes one scale over the whole activation tensor, so a row's
result depends on the other rows and on padding. Here every token is divided by its own largest
magnitude before quantization to uint8, and the product is multiplied by that magnitude.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes.common import RemoveUnusedNodesPass

from export.graph.splice import CONTRIB, Splice
from serve.bundle.manifest import INPUT_IDS

_INT8_MAX = 127
_GELU_MINIMUM = -0.17  # -0.16997 at x = -0.7518; in the tanh form -0.17004 at -0.7525
_MIDDLE = 128  # zero point with equal ranges below and above zero
# GELU is hardly ever negative: with 32 codes below zero, 223 instead of 127 remain above.
_GELU_ZERO = 32
# Zero point for the outputs of these operators.
_ZEROS = {"BiasGelu": _GELU_ZERO, "FastGelu": _GELU_ZERO, "Relu": 0}


class _Tokens(NamedTuple):
    """Activations as uint8.

    Attributes:
        codes: (rows, tokens, width) uint8; before a pooler (rows, width).
        magnitude: the divisor of each token, of the same shape but with width 1.
        step: difference between two codes, in units of the divided activation.
        zero: the zero point, the code of 0.
    """

    codes: ir.Value
    magnitude: ir.Value
    step: np.float32
    zero: np.uint8


def quantize(segment: ir.Model) -> ir.Model:
    """Return an int8 copy of an fp32 segment: layers, poolers, word embeddings."""
    model = segment.clone()
    for activation, products in _products(model.graph).items():
        tokens = _quantize_tokens(Splice(model, products[0]), activation)
        for node in products:
            _multiply(model, node, tokens)
    words = next((value for value in model.graph.inputs if value.name == INPUT_IDS), None)
    for node in list(model.graph):
        if node.op_type == "Gather" and node.inputs[1] is words:
            _quantize_lookup(model, node)
    RemoveUnusedNodesPass()(model)
    return model


def per_column(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return (inputs, outputs) weights as int8, and (outputs,) their scales."""
    largest = np.abs(weights).max(axis=0)
    scales = (np.where(largest > 0, largest, 1) / _INT8_MAX).astype(np.float32)
    return np.rint(weights / scales).astype(np.int8), scales


def _products(graph: ir.Graph) -> dict[ir.Value, list[ir.Node]]:
    """Return the products to quantize, by the activation they share."""
    found: dict[ir.Value, list[ir.Node]] = defaultdict(list)
    for node in graph:
        if node.op_type == "MatMul" or _is_pooler(node):
            activation, weights = node.inputs[:2]
            assert activation is not None
            assert weights is not None
            if weights.const_value is not None:
                found[activation].append(node)
    return found


def _is_pooler(node: ir.Node) -> bool:
    """Return whether a Gemm is a head's dense layer before tanh, not its small classifier."""
    return node.op_type == "Gemm" and any(n.op_type == "Tanh" for n, _ in node.outputs[0].uses())


def _quantize_tokens(splice: Splice, activation: ir.Value) -> _Tokens:
    """Divide every token by its magnitude and quantize it to uint8.

    A token of zeros is 0/0. Its code does not matter, because the product is multiplied by 0.
    """
    zero = _zero(activation)
    codes_above = _INT8_MAX if zero == _MIDDLE else 255 - zero
    absolute = splice.op("Abs", activation) if zero == _MIDDLE else activation
    magnitude = splice.op("ReduceMax", absolute, splice.constant("width", np.array([-1])))
    if zero == _GELU_ZERO:
        # With a smaller magnitude the code of GELU's minimum would be below 0.
        least = np.float32(-_GELU_MINIMUM * codes_above / zero)
        magnitude = splice.op("Max", magnitude, splice.constant("least", least))
    divided = splice.op("Div", activation, magnitude)
    step = splice.constant("code_step", np.float32(1 / codes_above))
    codes = splice.op("QuantizeLinear", divided, step, splice.constant("code_zero", np.uint8(zero)))
    splice.insert()
    return _Tokens(codes, magnitude, np.float32(1 / codes_above), np.uint8(zero))


def _zero(activation: ir.Value) -> int:
    producer = activation.producer()
    return _MIDDLE if producer is None else _ZEROS.get(producer.op_type, _MIDDLE)


def _multiply(model: ir.Model, node: ir.Node, tokens: _Tokens) -> None:
    # The exporter drops a bias of zeros.
    bias = node.inputs[2] if node.op_type == "Gemm" and len(node.inputs) > 2 else None
    weights, scales = per_column(_weights(node))
    splice = Splice(model, node)
    product = splice.op(
        "MatMulIntegerToFloat",
        tokens.codes,
        splice.constant("weights", weights),
        splice.constant("step", tokens.step),
        splice.constant("scales", scales),
        splice.constant("zero", tokens.zero),
        domain=CONTRIB,
    )
    scaled = splice.op("Mul", product, tokens.magnitude)
    splice.replace(splice.op("Add", scaled, bias) if bias is not None else scaled)


def _weights(node: ir.Node) -> NDArray[np.float32]:
    """Return (inputs, outputs) weights; a Gemm of the exporter stores them transposed."""
    weights = _constant(node.inputs[1])
    return weights.T if node.op_type == "Gemm" else weights


def _quantize_lookup(model: ir.Model, node: ir.Node) -> None:
    """Store word embeddings, most of a small model's size, as int8 with a scale per word."""
    codes, scales = per_column(_constant(node.inputs[0]).T)
    splice = Splice(model, node)
    ids = node.inputs[1]
    found = splice.op("Gather", splice.constant("words", codes.T), ids)
    scale = splice.op("Gather", splice.constant("scales", scales[:, None]), ids)
    as_float = splice.op("Cast", found, attributes={"to": ir.DataType.FLOAT.value})
    splice.replace(splice.op("Mul", as_float, scale))


def _constant(value: ir.Value | None) -> NDArray[np.float32]:
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy()
