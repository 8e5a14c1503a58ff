"""fp16 for GPUs: layers and hidden states in half precision, exit heads in full precision.

Exit rules read differences between logits that may be close, and a head costs almost nothing.
Pooling, pooler and classifier therefore stay fp32.
"""

import numpy as np
import onnx_ir as ir

from export.graph.splice import Splice
from serve.bundle.manifest import HIDDEN_OUT

_ANGLE_OPS = ("Cos", "Sin")
_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
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
    _cast_inputs(model, layers, _FLOAT, _HALF)
    _cast_inputs(model, {n for n in graph if n not in layers}, _HALF, _FLOAT)
    return model


def _is_exact(node: ir.Node) -> bool:
    """Return whether fp16 is too coarse for a node's inputs.

    Angles of rotary positions reach the hundreds, where fp16 has no fractions of a degree. A value
    cast to an integer may be a count, and fp16 cannot represent every integer beyond 2048.
    """
    if node.op_type == "Cast":
        return node.attributes["to"].as_int() in _INTEGERS
    return node.op_type in _ANGLE_OPS


def _ancestors(*values: ir.Value) -> set[ir.Node]:
    """Return every node that the values are computed from."""
    found: set[ir.Node] = set()
    pending = [*values]
    while pending:
        node = pending.pop().producer()
        if node is not None and node not in found:
            found.add(node)
            pending.extend(source for source in node.inputs if source is not None)
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
    """Give the layers fp16 copies of their weights; a head may share a weight with a layer."""
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
    # The filter value of a mask, the lowest fp32 number, must stay finite.
    array = np.clip(value.const_value.numpy(), -_LARGEST, _LARGEST).astype(np.float16)
    name = f"{value.name}.half"
    tensor = ir.tensor(array, name=name)
    shape, half = ir.Shape(array.shape), ir.TensorType(_HALF)
    return ir.Value(name=name, shape=shape, type=half, const_value=tensor)


def _cast_inputs(
    model: ir.Model, readers: set[ir.Node], unsuited: ir.DataType, suited: ir.DataType
) -> None:
    """Insert a Cast before every input of the readers that has the unsuited type."""
    for node in [n for n in model.graph if n in readers]:
        for index, value in enumerate(node.inputs):
            if value is not None and value.dtype == unsuited:
                splice = Splice(model, node)
                fitting = splice.op("Cast", value, attributes={"to": suited.value})
                splice.insert()
                node.replace_input_with(index, fitting)
