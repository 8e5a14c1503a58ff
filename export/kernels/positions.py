"""Position embeddings for counted positions: the first rows of the table."""

from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter.pattern import MatchResult, RewriteRuleClassBase, RewriteRuleSet


class _Counted(RewriteRuleClassBase):
    """Slice the table to the number of tokens, instead of looking each position up.

    The additions around it become one `Sum`.
    """

    def pattern(self, op: Any, words: Any, table: Any, numbers: Any, tokens: Any) -> Any:
        counted = op.Slice(numbers, [0], tokens, [1], [1])  # (1, tokens)
        return op.Add(words, op.Gather(table, counted, axis=0))

    def check(
        self,
        context: object,
        words: ir.Value,
        table: ir.Value,
        numbers: ir.Value,
        tokens: ir.Value,
    ) -> MatchResult:
        result = MatchResult()
        if table.const_value is None or numbers.const_value is None:
            return result.fail("no constant", table)
        array = numbers.const_value.numpy()
        rows = len(table.const_value.numpy())
        if array.ndim != 2 or array.tolist() != [list(range(rows - array.size, rows))]:
            return result.fail("these are not the table's last rows", numbers)
        return result

    def rewrite(
        self, op: Any, words: ir.Value, table: ir.Value, numbers: ir.Value, tokens: ir.Value
    ) -> ir.Value:
        assert table.const_value is not None
        assert numbers.const_value is not None
        array = table.const_value.numpy()
        unused = len(array) - numbers.const_value.size
        if unused:
            table = op.initializer(ir.tensor(array[unused:].copy(), name=f"{table.name}.counted"))
        zero = op.Constant(value=ir.tensor(np.array([0])))
        added = words.producer()
        terms = added.inputs if added is not None and added.op_type == "Add" else [words]
        return op.Sum(*terms, op.Slice(table, zero, tokens, zero))


_RULES = RewriteRuleSet([_Counted.rule()])


def slice_positions(model: ir.Model) -> None:
    """Slice position embeddings that are counted from the first token. In place."""
    _RULES.apply_to_model(model)
