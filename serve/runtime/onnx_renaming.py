"""Values of ONNX graphs under other names, so that graphs can be put into one."""

from collections.abc import Mapping

from serve.runtime.onnx_wire import (
    ATTRIBUTE,
    GIVES,
    INITIALIZER,
    INPUT,
    NODE,
    NODE_NAME,
    OUTPUT,
    READS,
    SUBGRAPH,
    SUBGRAPHS,
    TENSOR_NAME,
    VALUE_INFO,
    fields,
    taken_in,
    tensor_name,
)
from serve.runtime.onnx_writing import Pieces, framed, string

# Which field of these fields of a graph is the value's name.
_NAMED_BY = {INITIALIZER: TENSOR_NAME, INPUT: 1, OUTPUT: 1, VALUE_INFO: 1}


def made_in(graph: memoryview) -> set[str]:
    """Return the values that a graph's nodes make, and those that it holds."""
    made: set[str] = set()
    for number, whole, content, _ in fields(graph):
        if number == NODE:
            made.update(taken_in(whole, content).outputs)
        elif number == INITIALIZER:
            made.add(tensor_name(content))
    return made - {""}


def renamed(graph: memoryview, names: Mapping[str, str]) -> Pieces:
    """Return a graph's fields with other names for some values, graphs inside its nodes included.

    Nodes have no names then: equal ones may meet in a graph, where they must not be.

    Args:
        graph: the fields.
        names: new ones, by those that are there.
    """
    pieces: Pieces = []
    for number, whole, content, _ in fields(graph):
        if number == NODE:
            pieces += framed(NODE, _node(content, names))
        elif number in _NAMED_BY:
            pieces += framed(number, _names(content, {_NAMED_BY[number]}, names))
        else:
            pieces.append(whole)
    return pieces


def _node(content: memoryview, names: Mapping[str, str]) -> Pieces:
    pieces: Pieces = []
    for piece in _names(content, {READS, GIVES}, names):
        ((number, whole, part, _),) = fields(memoryview(piece))
        if number == ATTRIBUTE:
            pieces += framed(ATTRIBUTE, _attribute(part, names))
        elif number != NODE_NAME:
            pieces.append(whole)
    return pieces


def _attribute(content: memoryview, names: Mapping[str, str]) -> Pieces:
    pieces: Pieces = []
    for number, whole, part, _ in fields(content):
        inside = number in (SUBGRAPH, SUBGRAPHS)
        pieces += framed(number, renamed(part, names)) if inside else [whole]
    return pieces


def _names(message: memoryview, numbers: set[int], names: Mapping[str, str]) -> Pieces:
    """Return a message's fields, of which those with these numbers are names."""
    pieces: Pieces = []
    for number, whole, content, _ in fields(message):
        if number in numbers:
            name = str(content, "utf-8")
            pieces.append(string(number, names.get(name, name)))
        else:
            pieces.append(whole)
    return pieces
