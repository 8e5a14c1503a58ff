"""A convolution over tokens as one product, for large DeBERTa models of version 2."""

from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter.pattern import MatchResult, RewriteRuleClassBase, RewriteRuleSet

_TO_CHANNELS = [0, 2, 1]
_TO_THE_END = 2**62


class _Convolution(RewriteRuleClassBase):
    """Concatenate neighbouring tokens and multiply by the weights.

    The order in which ONNX Runtime's Conv sums depends on the number of tokens, padding included.
    A product with constant weights always sums in the same order, and can be quantized to int8.
    """

    def pattern(self, op: Any, hidden: Any, weights: Any, bias: Any) -> Any:
        channels = op.Transpose(hidden, perm=_TO_CHANNELS)
        return op.Transpose(op.Conv(channels, weights, bias, _outputs=["conv"]), perm=_TO_CHANNELS)

    def check(
        self,
        context: object,
        hidden: ir.Value,
        weights: ir.Value,
        bias: ir.Value,
        conv: ir.Value,
    ) -> MatchResult:
        found = MatchResult()
        if weights.const_value is None:
            return found.fail("the weights are no constant", weights)
        reach = weights.const_value.numpy().shape[2] // 2
        wanted = {"group": [1], "strides": [1], "dilations": [1], "pads": [reach, reach]}
        node = conv.producer()
        assert node is not None
        for name, expected in wanted.items():
            attribute = node.attributes.get(name)
            if attribute is not None and np.atleast_1d(attribute.value).tolist() != expected:
                return found.fail(f"{name} is not {expected}", conv)
        return found

    def rewrite(
        self, op: Any, hidden: ir.Value, weights: ir.Value, bias: ir.Value, **_values: ir.Value
    ) -> ir.Value:
        assert weights.const_value is not None
        array = weights.const_value.numpy()  # (outputs, inputs, tokens)
        outputs, inputs, tokens = array.shape
        reach = tokens // 2
        edges = op.Constant(value=ir.tensor(np.array([0, reach, 0, 0, reach, 0])))
        padded = op.Pad(hidden, edges)
        shifted = [_from(op, padded, first, tokens - 1 - first) for first in range(tokens)]
        matrix = array.transpose(2, 1, 0).reshape(tokens * inputs, outputs)
        product = op.MatMul(
            op.Concat(*shifted, axis=-1),
            op.initializer(ir.tensor(matrix.copy(), name=f"{weights.name}.matrix")),
        )
        return op.Add(product, bias)


def _from(op: Any, padded: ir.Value, first: int, dropped: int) -> ir.Value:
    """Return the tokens without the first `first` and the last `dropped` ones."""
    ends = -dropped if dropped else _TO_THE_END
    start, end, axis = (op.Constant(value_ints=[value]) for value in (first, ends, 1))
    return op.Slice(padded, start, end, axis)


_RULES = RewriteRuleSet([_Convolution.rule()])


def multiply_convolutions(model: ir.Model) -> None:
    """Replace convolutions over tokens by products. In place."""
    _RULES.apply_to_model(model)
