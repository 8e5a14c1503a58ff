"""Means over tokens as one product."""

from typing import Any

import onnx_ir as ir
from onnxscript.rewriter.pattern import MatchResult, RewriteRuleClassBase, RewriteRuleSet

from export.graph.splice import CONTRIB

_FLOAT = ir.DataType.FLOAT.value


class _Pooling(RewriteRuleClassBase):
    """A mean over tokens in five nodes instead of seven, always summed in the same order.

    ONNX Runtime has a special kernel for products whose left matrix is a single row. Its order of
    summing depends on the number of tokens, padding included. A transposed column takes the
    general kernel, which always sums in the same order.
    """

    def pattern(self, op: Any, mask: Any, hidden: Any, across: Any, one: Any, along: Any) -> Any:
        weights = op.Cast(op.Unsqueeze(mask, across), to=_FLOAT)  # (rows, 1, tokens)
        length = op.Max(op.ReduceSum(weights, along, keepdims=0), one)
        return op.Div(op.Squeeze(op.MatMul(weights, hidden), across), length)

    def check(
        self,
        context: object,
        mask: ir.Value,
        hidden: ir.Value,
        across: ir.Value,
        one: ir.Value,
        along: ir.Value,
    ) -> MatchResult:
        wanted = ((one, 1), (across, [1]), (along, [2]))
        found = MatchResult()
        for value, expected in wanted:
            if value.const_value is None or value.const_value.numpy().tolist() != expected:
                return found.fail(f"not {expected}", value)
        return found

    def rewrite(
        self,
        op: Any,
        mask: ir.Value,
        hidden: ir.Value,
        across: ir.Value,
        along: ir.Value,
        **_values: ir.Value,
    ) -> ir.Value:
        # The mean of a row of only padding is 0.
        shares = op.LpNormalization(op.Cast(mask, to=_FLOAT), p=1, axis=-1)
        column = op.Unsqueeze(shares, along)
        product = op.FusedMatMul(column, hidden, transA=1, _domain=CONTRIB)
        return op.Squeeze(product, across)


_POOLING = RewriteRuleSet([_Pooling.rule()])


def fix_order_of_pooling(model: ir.Model) -> None:
    """Make means over tokens independent of padding to the last bit, see `_Pooling`."""
    _POOLING.apply_to_model(model)


def take_shares(model: ir.Model, shares: ir.Value) -> None:
    """Let means over tokens read each token's share of the mean from an input. In place.

    The shares of a row add up to 1, so a mean of fp16 values that are finite is finite.

    Args:
        model: after `fix_order_of_pooling`.
        shares: (rows, tokens, 1).
    """
    for node in [n for n in model.graph if n.op_type == "LpNormalization"]:
        for column, _ in list(node.outputs[0].uses()):
            ir.convenience.replace_all_uses_with(column.outputs[0], shares)
    for product, _ in shares.uses():
        product.outputs[0].type = shares.type
