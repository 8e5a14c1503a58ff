"""A segment's ONNX model, taken apart: what it begins with, its layers, its head."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from serve.bundle.manifest import ATTENTION_MASK, HIDDEN, HIDDEN_OUT, KEEP
from serve.runtime.onnx_renaming import renamed
from serve.runtime.onnx_wire import (
    FUNCTION,
    GRAPH,
    INITIALIZER,
    INPUT,
    NODE,
    OPSET,
    OUTPUT,
    VALUE_INFO,
    Node,
    domain_of,
    element_of,
    fields,
    name_of,
    taken_in,
    tensor_name,
)
from serve.runtime.onnx_writing import Pieces, left_in, reading

# Operators that read rows of a table and no more: no kernel makes something else of it.
_LOOKS_UP = {"Gather", "Slice"}


class SegmentModel(NamedTuple):
    """The parts of a segment's model, in whole fields, tag and length included.

    Attributes:
        model: all but its graph and what it needs.
        operators: versions of operator sets, by domain.
        functions: that nodes may name as operators.
        inputs: by name.
        outputs: by name; that of hidden states is among them.
        tables: of the first segment, the embeddings that its layers look up, for the graph around
            all that runs them: in several, each would be mapped into memory by itself.
        entry: of a later segment, what chooses rows and cuts padding.
        entered: the value that `entry` gives.
        layers: what leads to the hidden states that go out.
        head: the rest, which reads what the layers give.
        said_by_head: outputs that come from `head`; others come from `layers`.
    """

    model: Pieces
    operators: dict[str, bytes]
    functions: list[bytes]
    inputs: dict[str, memoryview]
    outputs: dict[str, memoryview]
    tables: Pieces
    entry: Pieces
    entered: str
    layers: Pieces
    head: Pieces
    said_by_head: frozenset[str]


class _Model(NamedTuple):
    """What a model's file holds, by kind."""

    rest: Pieces
    operators: dict[str, bytes]
    functions: list[bytes]
    nodes: list[Node]
    tensors: dict[str, Pieces]
    notes: dict[str, memoryview]  # what is known of values
    inputs: dict[str, memoryview]
    outputs: dict[str, memoryview]


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
    read = _Model([], {}, [], [], {}, {}, {}, {})
    try:
        _read_model(model, file, read)
    except (IndexError, StopIteration, ValueError) as error:
        raise ValueError(f"{file}: no ONNX model") from error
    if HIDDEN_OUT not in read.outputs:
        raise ValueError(f"{file}: no output {HIDDEN_OUT}, so that it is no segment")
    entry, entered = ([], "") if carried is None else _entry(read.nodes, file)
    nodes = [node for node in read.nodes if entered not in node.outputs]
    layers = _leading_to({HIDDEN_OUT}, nodes)
    of_layers = set(map(id, layers))
    head = _leading_to(read.outputs, [node for node in nodes if id(node) not in of_layers])
    tables = [] if carried is not None else _looked_up(layers, head, read.tensors)
    names = {} if carried is None else {entered: carried}
    for node in nodes:
        if not node.within.isdisjoint(names):
            raise ValueError(f"{file}: {node.op} reads the hidden states from a graph inside it")
    names |= {name: f"{name} looked up" for name in tables}
    held = _read_by(layers).difference(tables)
    return SegmentModel(
        read.rest,
        read.operators,
        read.functions,
        read.inputs,
        read.outputs,
        tables=[piece for name in tables for piece in _held(read, name, names)],
        entry=_part(read, entry, entry_names, _read_by(entry)),
        entered=entered,
        layers=_part(read, layers, names, held),
        head=_part(read, head, names, _read_by(head) - held),
        said_by_head=frozenset(name for node in head for name in node.outputs),
    )


def reads_odd(graph: memoryview, inputs: Collection[str]) -> bool:
    """Tell whether a graph's fields read an odd number of these inputs, each counted once."""
    read: set[str] = set()
    for number, whole, content, _ in fields(graph):
        if number == NODE:
            read |= taken_in(whole, content).reads
    return len(read.intersection(inputs)) % 2 == 1


def _read_model(model: memoryview, file: str, read: _Model) -> None:
    for number, whole, content, at in fields(model):
        if number == GRAPH:
            _read_graph(content, at, file, read)
        elif number == OPSET:
            read.operators[domain_of(content)] = bytes(whole)
        elif number == FUNCTION:
            read.functions.append(bytes(whole))
        else:
            read.rest.append(whole)


def _read_graph(graph: memoryview, begin: int, file: str, read: _Model) -> None:
    for number, whole, content, at in fields(graph):
        if number == NODE:
            read.nodes.append(taken_in(whole, content))
        elif number == INITIALIZER:
            read.tensors[tensor_name(content)] = left_in(file, content, begin + at)
        elif number == INPUT:
            read.inputs[name_of(content)] = whole
        elif number == OUTPUT:
            element_of(content)  # it must have a type
            read.outputs[name_of(content)] = whole
        elif number == VALUE_INFO:
            read.notes[name_of(content)] = whole


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


def _looked_up(layers: Sequence[Node], head: Sequence[Node], tensors: Collection[str]) -> list[str]:
    """Return the values held that nobody reads but nodes of the layers which look them up."""
    tables = {name for node in layers if node.op in _LOOKS_UP for name in node.inputs[:1]}
    for node in [*layers, *head]:
        tables -= node.reads.difference(node.inputs[:1] if node.op in _LOOKS_UP else [])
    return [name for name in tensors if name in tables and name not in _read_by(head)]


def _held(read: _Model, name: str, names: Mapping[str, str]) -> Pieces:
    """Return a value that a model holds, under another name."""
    return renamed(memoryview(b"".join(read.tensors[name])), names)


def _part(
    read: _Model, nodes: Sequence[Node], names: Mapping[str, str], held: Collection[str]
) -> Pieces:
    """Return nodes that read some values under other names, and the values they hold."""
    pieces: Pieces = [reading(node, names) for node in nodes]
    # In the file's order, so that weights lie in memory alike in every process.
    for name, tensor in read.tensors.items():
        if name in held:
            pieces += tensor
    given = [name for node in nodes for name in node.outputs]
    return pieces + [read.notes[name] for name in given if name in read.notes]
