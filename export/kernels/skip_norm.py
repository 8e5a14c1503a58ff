"""The fused operator of a residual and a norm, taken apart."""

import onnx_ir as ir

from export.graph.splice import Splice

_SUM = 3  # position among the outputs


def split_norm(model: ir.Model, node: ir.Node) -> None:
    """Replace a SkipLayerNormalization by Sum and LayerNormalization. In place.

    Layers that normalise their input (ModernBERT) also read the sum. The sum must be a `Sum`: ONNX
    Runtime fuses `Add` and LayerNormalization again.
    """
    hidden, skip, gamma, beta, *bias = node.inputs
    splice = Splice(model, node)
    total = splice.op("Sum", hidden, *bias, skip)
    epsilon = node.attributes["epsilon"].as_float()
    attributes = {"axis": -1, "epsilon": epsilon}
    normal = splice.op("LayerNormalization", total, gamma, beta, attributes=attributes)
    sums = node.outputs[_SUM:]
    for each in sums:
        total.type, total.shape = each.type, each.shape
        ir.convenience.replace_all_uses_with(each, total, replace_graph_outputs=True)
    splice.replace(normal)
    for each in sums:
        total.name = each.name
