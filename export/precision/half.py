"""fp16 for GPUs: layers and hidden states in half precision, exit heads in full.

A head costs next to nothing, and what an exit rule reads of it is the difference of logits that
may be close; so pooling, pooler and classifier stay fp32.
"""

import numpy as np
import onnx_ir as ir

from export.graph.splice import Splice
from serve.bundle.manifest import HIDDEN_OUT

_OF_ANGLES = ("Cos", "Sin")
_WHOLE = (ir.DataType.INT32, ir.DataType.INT64)
_FLOAT, _HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
_LARGEST = float(np.finfo(np.float16).max)


def halve(segment: ir.Model) -> ir.Model:
    """Return a copy of an fp32 segment whose layers compute in fp16; logits stay fp32."""
    model = segment.clone()
    graph = model.graph
    carried = next(value for value in graph.outputs if value.name == HIDDEN_OUT)
    exact = _ancestors(*(v for n in graph if _is_exact(n) for v in n.outputs))
    layers = _ancestors(carried) - exact
    for value in graph.inputs:
        _retype(value)
    for node in graph:
        if node in layers:
            _halve_node(node)
    _halve_weights(model, layers)
    _narrow_for_layers(model, layers)
    _widen_for_heads(model, layers)
    return model


def _is_exact(node: ir.Node) -> bool:
    """Tell whether fp16 is too coarse for what a node is made from.

    Angles of rotary positions reach the hundreds, where it knows no fractions of a degree; what
    becomes a whole number may be a count, and beyond 2048 it does not know each of them.
    """
    if node.op_type == "Cast":
        return node.attributes["to"].as_int() in _WHOLE
    return node.op_type in _OF_ANGLES


def _ancestors(*values: ir.Value) -> set[ir.Node]:
    """Return every node that the values are computed from."""
    found: set[ir.Node] = set()
    waiting = [*values]
    while waiting:
        node = waiting.pop().producer()
        if node is not None and node not in found:
            found.add(node)
            waiting.extend(source for source in node.inputs if source is not None)
    return found


def _halve_node(node: ir.Node) -> None:
    if node.op_type == "Cast" and node.attributes["to"].as_int() == _FLOAT:
        node.attributes["to"] = ir.AttrInt64("to", _HALF.value)
    for output in node.outputs:
        _retype(output)


def _retype(value: ir.Value) -> None:
    if value.dtype == _FLOAT:
        value.type = ir.TensorType(_HALF)


def _halve_weights(model: ir.Model, layers: set[ir.Node]) -> None:
    """Give the layers fp16 copies of their weights; the exporter may share one with a head."""
    graph = model.graph
    for value in list(graph.initializers.values()):
        uses = [(node, index) for node, index in value.uses() if node in layers]
        if value.dtype != _FLOAT or not uses:
            continue
        copy = _half_copy(value)
        graph.register_initializer(copy)
        for node, index in uses:
            node.replace_input_with(index, copy)
        if not value.uses():
            assert value.name is not None
            del graph.initializers[value.name]


def _half_copy(value: ir.Value) -> ir.Value:
    assert value.const_value is not None
    # A mask's filter, the lowest fp32 number, must stay finite.
    array = np.clip(value.const_value.numpy(), -_LARGEST, _LARGEST).astype(np.float16)
    name = f"{value.name}.half"
    tensor = ir.tensor(array, name=name)
    shape, half = ir.Shape(array.shape), ir.TensorType(_HALF)
    return ir.Value(name=name, shape=shape, type=half, const_value=tensor)


def _narrow_for_layers(model: ir.Model, layers: set[ir.Node]) -> None:
    """Put a Cast to fp16 between what stays fp32 and the layers that read it."""
    _cast_inputs(model, layers, _FLOAT, _HALF)


def _widen_for_heads(model: ir.Model, layers: set[ir.Node]) -> None:
    """Put a Cast to fp32 between the layers and what reads them outside."""
    _cast_inputs(model, {n for n in model.graph if n not in layers}, _HALF, _FLOAT)


def _cast_inputs(
    model: ir.Model, readers: set[ir.Node], unsuited: ir.DataType, suited: ir.DataType
) -> None:
    for node in [n for n in model.graph if n in readers]:
        for index, value in enumerate(node.inputs):
            if value is not None and value.dtype == unsuited:
                splice = Splice(model, node)
                fitting = splice.op("Cast", value, attributes={"to": suited.value})
                splice.insert()
                node.replace_input_with(index, fitting)
