"""Folding values that depend on weights alone, such as DeBERTa's projected positions."""

import onnx_ir as ir
from onnx.reference.ops import load_op
from onnxscript.optimizer import fold_constants

from export.graph.splice import Splice

_ANY_SIZE = 2**31


def fold_weights(model: ir.Model) -> None:
    """Replace every value that does not depend on an input by a constant. In place."""
    for node in [n for n in model.graph if n.op_type == "LayerNormalization"]:
        if all(value is not None and value.const_value is not None for value in node.inputs):
            _fold_norm(model, node)
    fold_constants(model, input_size_limit=_ANY_SIZE, output_size_limit=_ANY_SIZE)


def _fold_norm(model: ir.Model, node: ir.Node) -> None:
    """Fold a LayerNormalization, which onnxscript cannot: its reference returns three results."""
    arrays = [value.const_value.numpy() for value in node.inputs if value and value.const_value]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    normal, *_ = load_op("", node.op_type, model.opset_imports[""]).eval(*arrays, **attributes)
    splice = Splice(model, node)
    splice.replace(splice.constant("folded", normal))
