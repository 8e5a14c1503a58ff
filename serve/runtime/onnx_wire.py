"""ONNX models read as bytes: the few messages that joining graphs takes.

Only the frames of protobuf's wire format (ONNX's IR, https://onnx.ai/onnx/repo-docs/IR.html), so
that the server can do without ONNX's library, and weights are not copied to be moved. What writes
them is `serve.runtime.onnx_writing`.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

# Fields of ONNX's messages.
GRAPH, OPSET, FUNCTION = 7, 8, 25  # of a model
NODE, NAME, INITIALIZER, INPUT, OUTPUT, VALUE_INFO = 1, 2, 5, 11, 12, 13  # of a graph
READS, GIVES, NODE_NAME, OP, ATTRIBUTE = 1, 2, 3, 4, 5  # of a node
DIMS, DATA_TYPE, TENSOR_NAME, RAW_DATA, EXTERNAL, LOCATION = 1, 2, 8, 9, 13, 14  # of a tensor
INTEGER, SUBGRAPH, SUBGRAPHS, KIND = 3, 6, 11, 20  # of an attribute

FLOAT: Final = 1
INT64: Final = 7
BOOL: Final = 9
FLOAT16: Final = 10

LENGTH_DELIMITED: Final = 2
_FIXED_BYTES = {1: 8, 5: 4}  # by wire type


class Node(NamedTuple):
    """A node of a graph.

    Attributes:
        whole: its field.
        op: its operator.
        inputs: names of values; "" for one that is left out.
        outputs: likewise.
        within: values that graphs inside the node read or make.
    """

    whole: memoryview
    op: str
    inputs: list[str]
    outputs: list[str]
    within: frozenset[str]

    @property
    def reads(self) -> set[str]:
        """Every value it may read."""
        return {*self.inputs, *self.within} - {""}


def fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview, int]]:
    """Yield each field's number, the whole field, its content, and where that begins.

    Raises:
        IndexError: the message ends too early.
        ValueError: it is none.
    """
    at = 0
    while at < len(message):
        begin = at
        tag, at = _read_varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == LENGTH_DELIMITED:
            length, at = _read_varint(message, at)
        elif wire_type == 0:
            length = _read_varint(message, at)[1] - at
        elif wire_type in _FIXED_BYTES:
            length = _FIXED_BYTES[wire_type]
        else:
            raise ValueError(f"unknown wire type {wire_type}")
        if at + length > len(message):
            raise IndexError("the message ends within a field")
        yield number, message[begin : at + length], message[at : at + length], at
        at += length


def name_of(value: memoryview) -> str:
    """Return the name of a graph's input or output.

    Raises:
        StopIteration: it has none.
    """
    return next(str(content, "utf-8") for number, _, content, _ in fields(value) if number == 1)


def domain_of(operators: memoryview) -> str:
    """Return the domain of an operator set; "" is ONNX's own."""
    return next((str(part, "utf-8") for number, _, part, _ in fields(operators) if number == 1), "")


def element_of(value: memoryview) -> int:
    """Return the type of the elements of a graph's input or output.

    Raises:
        StopIteration: it has none.
    """
    return next(content[0] for number, _, content, _ in _tensor_type(value) if number == 1)


def rank_of(value: memoryview) -> int | None:
    """Return how many dimensions a graph's input or output has; None if it does not say.

    Raises:
        StopIteration: it has no type.
    """
    for number, _, shape, _ in _tensor_type(value):
        if number == 2:
            return sum(field_number == 1 for field_number, *_ in fields(shape))
    return None


def tensor_name(tensor: memoryview) -> str:
    """Return the name of a value that a graph holds.

    Raises:
        StopIteration: it has none.
    """
    return next(
        str(content, "utf-8") for number, _, content, _ in fields(tensor) if number == TENSOR_NAME
    )


def taken_in(whole: memoryview, content: memoryview) -> Node:
    """Return a node.

    Args:
        whole: its field.
        content: of the field.
    """
    op, inputs, outputs, within = "", list[str](), list[str](), set[str]()
    for number, _, part, _ in fields(content):
        if number == READS:
            inputs.append(str(part, "utf-8"))
        elif number == GIVES:
            outputs.append(str(part, "utf-8"))
        elif number == OP:
            op = str(part, "utf-8")
        elif number == ATTRIBUTE:
            within |= _names_within(part)
    return Node(whole, op, inputs, outputs, frozenset(within))


def _names_within(attribute: memoryview) -> set[str]:
    names: set[str] = set()
    for number, _, graph, _ in fields(attribute):
        if number not in (SUBGRAPH, SUBGRAPHS):
            continue
        for part, whole, content, _ in fields(graph):
            if part == NODE:
                node = taken_in(whole, content)
                names |= {*node.reads, *node.outputs}
            elif part == OUTPUT:
                names.add(name_of(content))
    return names


def _tensor_type(value: memoryview) -> Iterator[tuple[int, memoryview, memoryview, int]]:
    type_ = next(content for number, _, content, _ in fields(value) if number == 2)
    return fields(next(content for number, _, content, _ in fields(type_) if number == 1))


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
