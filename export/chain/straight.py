"""All layers and the last head without any `If`, for runs from the first segment to the last.

For a short text, whose weights are not in the caches, the `If`s of the joined graph cost up to a
sixth of the time. This graph refers to the same weights, which ONNX Runtime packs once in a session
(https://github.com/microsoft/onnxruntime/pull/23069).
"""

from collections.abc import Sequence

import onnx_ir as ir

from export.chain.nodes import Nodes
from export.chain.segment_parts import take_apart

# Operators that read rows of a table. ONNX Runtime packs no such table.
_LOOK_UP = {"Gather", "Slice"}


def straight_graph(models: Sequence[ir.Model], left: Sequence[ir.Value]) -> ir.Graph:
    """Return the graph; it gives the last head's outputs, and no rows in the place of `left`.

    Args:
        models: the segments, first to last; their nodes are taken out.
        left: the hidden states after each segment but the last, as the other branch gives them.
    """
    nodes: list[ir.Node] = []
    hidden = None
    for number, model in enumerate(models):
        parts = take_apart(model, f"straight {number}", hidden)
        nodes += parts.layers
        hidden = parts.hidden
    graph = Nodes([*nodes, *parts.head])
    nothing = [graph.no_rows(value, f"straight {value.name}") for value in left]
    return graph.graph("straight", [*parts.outputs, *nothing])


def share_tables(graph: ir.Graph, other: ir.Graph) -> dict[ir.Value, ir.TensorProtocol]:
    """Let two copies of a graph read the same embeddings, which the outer graph is to hold.

    In each branch ONNX Runtime would map the tables into memory once more.

    Returns:
        The tables that `graph` reads, no longer constants, and what each must hold in the end.
    """
    tables: dict[ir.Value, ir.TensorProtocol] = {}
    for name, value in list(graph.initializers.items()):
        if not all(n.op_type in _LOOK_UP and place == 0 for n, place in value.uses()):
            continue
        assert value.const_value is not None
        tables[value] = value.const_value
        ir.convenience.replace_all_uses_with(other.initializers[name], value)
        del graph.initializers[name]
        value.const_value = None
    return tables
