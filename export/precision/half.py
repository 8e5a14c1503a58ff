"""fp16 for GPUs: layers, hidden states and pooling in half precision, exit heads in full.

Exit rules read differences between logits that may be close, and a head costs almost nothing.
Pooler and classifier therefore stay fp32. Pooling reads all hidden states, which a cast would write
once more; the pooled vectors are cast.
"""

import numpy as np
import onnx_ir as ir

from export.graph.splice import Splice
from serve.bundle.manifest import HIDDEN, HIDDEN_OUT, SHARES

_ANGLE_OPS = ("Cos", "Sin")
_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
_FLOAT, _HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
_LARGEST = float(np.finfo(np.float16).max)


def halve(body: ir.Model) -> ir.Model:
    """Return a copy of fp32 layers, computing in fp16; what else the graph gives stays fp32."""
    model = body.clone()
    graph = model.graph
    carried = next(value for value in graph.outputs if value.name == HIDDEN_OUT)
    exact = _ancestors(*(v for n in graph if _is_exact(n) for v in n.outputs))
    _convert(model, _ancestors(carried) - exact)
    return model


def halve_head(head: ir.Model) -> ir.Model:
    """Return a copy of an fp32 exit head that reads fp16 hidden states; logits stay fp32."""
    model = head.clone()
    _convert(model, _pooling(model.graph))
    return model


def _convert(model: ir.Model, layers: set[ir.Node]) -> None:
    """Let some nodes and all inputs be fp16. In place."""
    graph = model.graph
    for value in graph.inputs:
        _retype(value)
    for node in graph:
        if node in layers:
            _halve_node(node)
    _halve_weights(model, layers)
    _cast_inputs(model, layers, _FLOAT, _HALF)
    _cast_inputs(model, {n for n in graph if n not in layers}, _HALF, _FLOAT)


def _pooling(graph: ir.Graph) -> set[ir.Node]:
    """Return the nodes from hidden states to one vector per row; none if a head has no such.

    A norm before pooling (ModernBERT) is one of them.
    """
    found: set[ir.Node] = set()
    value = next(value for value in graph.inputs if value.name == HIDDEN)
    while len(value.uses()) == 1:
        ((node, _),) = value.uses()
        found.add(node)
        if _pools(node):
            return found
        if node.op_type != "LayerNormalization":
            break
        value = node.outputs[0]
    return set()


def _pools(node: ir.Node) -> bool:
    if node.op_type == "Gather":  # the first token
        return node.attributes["axis"].as_int() == 1
    return any(value is not None and value.name == SHARES for value in node.inputs)


def _is_exact(node: ir.Node) -> bool:
    """Return whether fp16 is too coarse for a node's inputs.

    Angles of rotary positions reach the hundreds, where fp16 has no fractions of a degree. A value
    cast to an integer may be a count, and fp16 cannot represent every integer beyond 2048.
    """
    if node.op_type == "Cast":
        (source,) = node.inputs
        truth = source is not None and source.dtype == ir.DataType.BOOL
        return node.attributes["to"].as_int() in _INTEGERS and not truth
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
    """Insert a Cast of every unsuited value that the readers take, before the first of them."""
    fitting: dict[ir.Value, ir.Value] = {}
    for node in [n for n in model.graph if n in readers]:
        for index, value in enumerate(node.inputs):
            if value is None or value.dtype != unsuited:
                continue
            if value not in fitting:
                splice = Splice(model, node)
                fitting[value] = splice.op("Cast", value, attributes={"to": suited.value})
                splice.insert()
            node.replace_input_with(index, fitting[value])
