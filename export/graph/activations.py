"""Fusing activations in a form of transformers that onnxscript's rules do not match."""

import math
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter.pattern import MatchResult, RewriteRuleClassBase, RewriteRuleSet

from export.graph.splice import CONTRIB


class _TanhGelu(RewriteRuleClassBase):
    """A Linear's bias followed by GELU's tanh form (`gelu_new`), as in ALBERT."""

    def pattern(self, op: Any, x: Any, bias: Any) -> Any:
        added = op.Add(x, bias)
        cubic = op.Add(added, op.Mul(op.Pow(added, 3.0), 0.044715))
        tanh = op.Tanh(op.Mul(cubic, math.sqrt(2 / math.pi)))
        return op.Mul(op.Mul(added, 0.5), op.Add(tanh, 1.0))

    def check(self, context: object, x: ir.Value, bias: ir.Value) -> MatchResult:
        constant = bias.const_value is not None and len(bias.const_value.shape) == 1
        found = MatchResult()
        return found if constant else found.fail("the bias is no constant vector", bias)

    def rewrite(self, op: Any, x: ir.Value, bias: ir.Value) -> ir.Value:
        return op.FastGelu(x, bias, _domain=CONTRIB)


_RULES = RewriteRuleSet([_TanhGelu.rule()])


def fuse_activations(model: ir.Model) -> None:
    """Fuse a bias and GELU's tanh form into FastGelu. In place."""
    _RULES.apply_to_model(model)
