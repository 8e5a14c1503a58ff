"""A segment's graph taken apart into its layers and its head."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import onnx_ir as ir

from serve.bundle.manifest import HIDDEN


class SegmentParts(NamedTuple):
    """A segment without the nodes that choose rows and cut padding.

    Attributes:
        layers: nodes that lead to the hidden states.
        head: the other nodes, which lead to the outputs.
        hidden: the hidden states that the segment passes on.
        outputs: what the head gives.
    """

    layers: list[ir.Node]
    head: list[ir.Node]
    hidden: ir.Value
    outputs: list[ir.Value]


def take_apart(model: ir.Model, prefix: str, entered: ir.Value | None) -> SegmentParts:
    """Return the parts of a segment.

    Args:
        model: the segment; its nodes are taken out.
        prefix: of the names of its nodes and values from now on.
        entered: what the layers read in place of the chosen rows; None in the first segment.
    """
    graph = model.graph
    hidden, *outputs = graph.outputs
    graph.outputs.clear()
    nodes = list(graph)
    graph.remove(nodes)
    for node in nodes:
        for value in node.outputs:
            value.name = f"{prefix}/{value.name}"
        node.name = node.outputs[0].name
    if entered is not None:
        ir.convenience.replace_all_uses_with(chosen(nodes), entered)
    layers = _leading_to([hidden], nodes)
    head = _leading_to(outputs, [node for node in nodes if node not in layers])
    return SegmentParts(layers, head, hidden, outputs)


def chosen(nodes: Iterable[ir.Node]) -> ir.Value:
    """Return the hidden states once rows are chosen and padding is cut.

    `export.graph.compaction` writes the two nodes that do so.
    """
    (gather,) = [node for node in nodes if HIDDEN in _input_names(node)]
    (cut,) = [node for node, _ in gather.outputs[0].uses()]
    return cut.outputs[0]


def _input_names(node: ir.Node) -> list[str | None]:
    return [None if value is None else value.name for value in node.inputs]


def _leading_to(values: Iterable[ir.Value], nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Return the nodes from which the values are computed, in order."""
    wanted, found = set(values), list[ir.Node]()
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            found.append(node)
            wanted.update(value for value in node.inputs if value is not None)
    return found[::-1]
