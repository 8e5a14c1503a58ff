"""Fusing activations that onnxscript's own rules do not know in the form transformers writes."""

import math

import onnx_ir as ir
from onnxscript.rewriter import pattern

from export.splice import CONTRIB


class _TanhGelu(pattern.RewriteRuleClassBase):
    """A Linear's bias and GELU's tanh form, of ALBERT among others (`gelu_new`)."""

    def pattern(self, op, x, bias):
        added = op.Add(x, bias)
        cubic = op.Add(added, op.Mul(op.Pow(added, 3.0), 0.044715))
        tanh = op.Tanh(op.Mul(cubic, math.sqrt(2 / math.pi)))
        return op.Mul(op.Mul(added, 0.5), op.Add(tanh, 1.0))

    def check(self, context, bias, **_values):
        constant = bias.const_value is not None and len(bias.shape) == 1
        found = pattern.MatchResult()
        return found if constant else found.fail("the bias is no constant vector", bias)

    def rewrite(self, op, x, bias):
        return op.FastGelu(x, bias, _domain=CONTRIB)


_RULES = pattern.RewriteRuleSet([_TanhGelu.rule()])


def fuse_activations(model: ir.Model) -> None:
    """Make FastGelu of a bias and GELU's tanh form. In place."""
    _RULES.apply_to_model(model)
