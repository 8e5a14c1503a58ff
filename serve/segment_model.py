"""A segment's ONNX model, taken apart: what it begins with, its layers, its head."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from serve.manifest import ATTENTION_MASK, HIDDEN, HIDDEN_OUT, KEEP
from serve.onnx_wire import (
    FUNCTION,
    GRAPH,
    INITIALIZER,
    INPUT,
    NODE,
    OPSET,
    OUTPUT,
    VALUE_INFO,
    Node,
    element_of,
    fields,
    name_of,
    taken_in,
    tensor_name,
)
from serve.onnx_writing import Pieces, left_in, reading


class SegmentModel(NamedTuple):
    """The parts of a segment's model, in whole fields, tag and length included.

    Attributes:
        model: all but its graph and what it needs.
        needs: versions of operator sets, functions.
        inputs: by name.
        outputs: by name; that of hidden states is among them.
        entry: of a later segment, what chooses rows and cuts padding.
        entered: the value that `entry` gives.
        layers: what leads to the hidden states that go out.
        head: the rest, which reads what the layers give.
        said_by_head: outputs that come from `head`; others come from `layers`.
    """

    model: Pieces
    needs: list[bytes]
    inputs: dict[str, memoryview]
    outputs: dict[str, memoryview]
    entry: Pieces
    entered: str
    layers: Pieces
    head: Pieces
    said_by_head: frozenset[str]


class _Graph(NamedTuple):
    nodes: list[Node]
    tensors: dict[str, Pieces]
    notes: dict[str, memoryview]  # what is known of values


def taken_apart(
    model: memoryview, file: str, carried: str | None, entry_names: Mapping[str, str]
) -> SegmentModel:
    """Return the parts of a model.

    Args:
        model: its bytes.
        file: where they are, and where its weights will be read.
        carried: under which name layers and head find the hidden states, rows chosen; None for
            the first segment, which takes ids.
        entry_names: under which names `SegmentModel.entry` finds what it reads, if not its own.

    Raises:
        ValueError: it is no segment; the message begins with the file.
    """
    rest: Pieces = []
    needs: list[bytes] = []
    graph, inputs, outputs = _Graph([], {}, {}), dict[str, memoryview](), dict[str, memoryview]()
    try:
        for number, whole, content, at in fields(model):
            if number == GRAPH:
                _read(content, at, file, graph, inputs, outputs)
            elif number in (OPSET, FUNCTION):
                needs.append(bytes(whole))
            else:
                rest.append(whole)
    except (IndexError, StopIteration, ValueError) as error:
        raise ValueError(f"{file}: no ONNX model") from error
    if HIDDEN_OUT not in outputs:
        raise ValueError(f"{file}: no output {HIDDEN_OUT}, so that it is no segment")
    entry, entered = ([], "") if carried is None else _entry(graph.nodes, file)
    nodes = [node for node in graph.nodes if entered not in node.outputs]
    layers = _leading_to({HIDDEN_OUT}, nodes)
    of_layers = set(map(id, layers))
    head = _leading_to(outputs, [node for node in nodes if id(node) not in of_layers])
    names = {} if carried is None else {entered: carried}
    for node in nodes:
        if not node.within.isdisjoint(names):
            raise ValueError(f"{file}: {node.op} reads the hidden states from a graph inside it")
    held = _read_by(layers)
    return SegmentModel(
        rest,
        needs,
        inputs,
        outputs,
        entry=_part(graph, entry, entry_names, _read_by(entry)),
        entered=entered,
        layers=_part(graph, layers, names, held),
        head=_part(graph, head, names, _read_by(head) - held),
        said_by_head=frozenset(name for node in head for name in node.outputs),
    )


def _read(
    content: memoryview,
    begin: int,
    file: str,
    graph: _Graph,
    inputs: dict[str, memoryview],
    outputs: dict[str, memoryview],
) -> None:
    for number, whole, field, at in fields(content):
        if number == NODE:
            graph.nodes.append(taken_in(whole, field))
        elif number == INITIALIZER:
            graph.tensors[tensor_name(field)] = left_in(file, field, begin + at)
        elif number == INPUT:
            inputs[name_of(field)] = whole
        elif number == OUTPUT:
            element_of(field)  # it must have a type
            outputs[name_of(field)] = whole
        elif number == VALUE_INFO:
            graph.notes[name_of(field)] = whole


def _entry(nodes: Sequence[Node], file: str) -> tuple[list[Node], str]:
    """Return the nodes that choose rows and cut padding, and the value that they give.

    Rows must be chosen by what does nothing where all are, so that it can be left out there.
    """
    first = [node for node in nodes if node.reads & {HIDDEN, KEEP}]
    if [(node.op, node.inputs) for node in first] != [("Gather", [HIDDEN, KEEP])]:
        raise ValueError(f"{file}: it must begin with Gather({HIDDEN}, {KEEP}), and read them once")
    (entered,) = first[0].outputs
    readers = [node for node in nodes if entered in node.reads]
    if len(readers) == 1 and _cuts(readers[0], entered, nodes):
        (entered,) = readers[0].outputs
    return _leading_to({entered}, nodes), entered


def _cuts(node: Node, hidden: str, nodes: Sequence[Node]) -> bool:
    """Tell whether a node cuts hidden states to the width of the attention mask."""
    if node.op != "Slice" or node.inputs[0] != hidden:
        return False
    return any(
        (other.op, other.inputs) == ("Shape", [ATTENTION_MASK])
        for other in nodes
        if node.inputs[2] in other.outputs
    )


def _leading_to(names: Iterable[str], nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that it takes for these values, in order."""
    wanted, found = set(names), list[Node]()
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            found.append(node)
            wanted |= node.reads
    return found[::-1]


def _read_by(nodes: Iterable[Node]) -> set[str]:
    return {name for node in nodes for name in node.reads}


def _part(
    graph: _Graph, nodes: Sequence[Node], names: Mapping[str, str], held: Iterable[str]
) -> Pieces:
    """Return nodes that read some values under other names, and the values they hold."""
    pieces: Pieces = [reading(node, names) for node in nodes]
    for name in held:
        pieces += graph.tensors.get(name, [])
    given = [name for node in nodes for name in node.outputs]
    return pieces + [graph.notes[name] for name in given if name in graph.notes]
