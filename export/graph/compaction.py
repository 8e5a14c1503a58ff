"""The first nodes of a later segment: select rows and cut padding, on the device."""

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from export.checks.contract import CARRIED, CHOSEN, Port
from serve.bundle.manifest import ATTENTION_MASK


def put_compaction_first(model: ir.Model, sizes: dict[str, int]) -> None:
    """Replace a traced stage's first input by Gather(hidden, keep), cut to the mask's width.

    The nodes are added to the graph, not traced in PyTorch: a traced slice has the width
    `min(tokens, tokens_in)`, and attention on it is not fused.

    Args:
        model: a graph of compacted hidden states and the attention mask; changed in place.
        sizes: axis sizes of this model, by name.
    """
    graph = model.graph
    traced = graph.inputs[0]
    mask = next(value for value in graph.inputs if value.name == ATTENTION_MASK)
    hidden, keep = (_input(port, sizes) for port in (CARRIED, CHOSEN))
    tape = Tape()
    rows = tape.op("Gather", [hidden, keep], {"axis": 0})
    width = tape.op("Shape", [mask], {"start": 1, "end": 2})
    start = tape.initializer(ir.tensor(np.array([0], np.int64), name="compaction.start"))
    axis = tape.initializer(ir.tensor(np.array([1], np.int64), name="compaction.axis"))
    cut = tape.op("Slice", [rows, start, width, axis])
    cut.shape, cut.type = traced.shape, traced.type
    for initializer in tape.initializers:
        graph.register_initializer(initializer)
    ir.convenience.replace_all_uses_with(traced, cut)
    graph.inputs[0:1] = [hidden, keep]
    graph.insert_before(graph[0], tape.nodes)


def _input(port: Port, sizes: dict[str, int]) -> ir.Value:
    shape = ir.Shape([sizes.get(axis, axis) for axis in port.axes])
    return ir.Value(name=port.name, shape=shape, type=ir.TensorType(port.element))
