"""ONNX models as bytes: the few messages that joining graphs takes.

Only the frames of protobuf's wire format (ONNX's IR, https://onnx.ai/onnx/repo-docs/IR.html), so
that the server can do without ONNX's library, and weights are not copied to be moved.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Fields of ONNX's messages.
GRAPH, OPSET, FUNCTION = 7, 8, 25  # of a model
NODE, NAME, INITIALIZER, INPUT, OUTPUT, VALUE_INFO = 1, 2, 5, 11, 12, 13  # of a graph
_READS, _GIVES, _OP, _ATTRIBUTE = 1, 2, 4, 5  # of a node
_DIMS, _DATA_TYPE, _TENSOR_NAME, _RAW_DATA, _EXTERNAL, _LOCATION = 1, 2, 8, 9, 13, 14  # of a tensor
_INTEGER, _SUBGRAPH, _SUBGRAPHS, _KIND = 3, 6, 11, 20  # of an attribute
_IS_INTEGER, _IS_GRAPH = 2, 5  # kinds of attributes

FLOAT: Final = 1
INT64: Final = 7
BOOL: Final = 9
KINDS: Final = {FLOAT: np.float32, INT64: np.int64, 10: np.float16}

_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}  # by wire type
_FEW_BYTES = 256

# To be written one after the other.
Pieces: TypeAlias = list[bytes | memoryview]


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
        if wire_type == _LENGTH_DELIMITED:
            length, at = _read_varint(message, at)
        elif wire_type == 0:
            length = _read_varint(message, at)[1] - at
        elif wire_type in _FIXED_BYTES:
            length = _FIXED_BYTES[wire_type]
        else:
            raise ValueError(f"unknown wire type {wire_type}")
        yield number, message[begin : at + length], message[at : at + length], at
        at += length


def name_of(value: memoryview) -> str:
    """Return the name of a graph's input or output.

    Raises:
        StopIteration: it has none.
    """
    return next(str(content, "utf-8") for number, _, content, _ in fields(value) if number == 1)


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
        str(content, "utf-8") for number, _, content, _ in fields(tensor) if number == _TENSOR_NAME
    )


def taken_in(whole: memoryview, content: memoryview) -> Node:
    """Return a node.

    Args:
        whole: its field.
        content: of the field.
    """
    op, inputs, outputs, within = "", list[str](), list[str](), set[str]()
    for number, _, part, _ in fields(content):
        if number == _READS:
            inputs.append(str(part, "utf-8"))
        elif number == _GIVES:
            outputs.append(str(part, "utf-8"))
        elif number == _OP:
            op = str(part, "utf-8")
        elif number == _ATTRIBUTE:
            within |= _names_within(part)
    return Node(whole, op, inputs, outputs, frozenset(within))


def _names_within(attribute: memoryview) -> set[str]:
    names: set[str] = set()
    for number, _, graph, _ in fields(attribute):
        if number not in (_SUBGRAPH, _SUBGRAPHS):
            continue
        for part, whole, content, _ in fields(graph):
            if part == NODE:
                node = taken_in(whole, content)
                names |= {*node.reads, *node.outputs}
            elif part == OUTPUT:
                names.add(name_of(content))
    return names


def reading(node: Node, names: Mapping[str, str]) -> bytes | memoryview:
    """Return a node's field that reads some values under other names.

    Raises:
        ValueError: a graph inside the node reads one of them.
    """
    if not node.within.isdisjoint(names):
        raise ValueError(f"{node.op} reads {', '.join(sorted(node.within & names.keys()))} inside")
    if names.keys().isdisjoint(node.inputs):
        return node.whole
    ((_, _, content, _),) = fields(node.whole)
    kept: Pieces = [whole for number, whole, *_ in fields(content) if number != _READS]
    return b"".join(framed(NODE, [*(string(_READS, names.get(n, n)) for n in node.inputs), *kept]))


def _tensor_type(value: memoryview) -> Iterator[tuple[int, memoryview, memoryview, int]]:
    type_ = next(content for number, _, content, _ in fields(value) if number == 2)
    return fields(next(content for number, _, content, _ in fields(type_) if number == 1))


def field(number: int, content: bytes) -> bytes:
    """Return a field."""
    return _head(number, len(content)) + content


def framed(number: int, content: Pieces) -> Pieces:
    """Return a field whose content is in pieces."""
    return [_head(number, sum(map(len, content))), *content]


def string(number: int, text: str) -> bytes:
    """Return a field that is a text."""
    return field(number, text.encode())


def node(
    op: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    graphs: dict[str, Pieces] | None = None,
    integers: dict[str, int] | None = None,
) -> Pieces:
    """Return a graph's field that is a node.

    Args:
        op: its operator.
        inputs: names of values; "" for one that is left out.
        outputs: likewise.
        graphs: attributes that are graphs.
        integers: attributes that are integers.
    """
    content: Pieces = [string(_READS, name) for name in inputs]
    content += [string(_GIVES, name) for name in outputs]
    content.append(string(_OP, op))
    for name, graph in (graphs or {}).items():
        attribute = [string(1, name), *framed(_SUBGRAPH, graph), _number(_KIND, _IS_GRAPH)]
        content += framed(_ATTRIBUTE, attribute)
    for name, value in (integers or {}).items():
        content.append(
            field(
                _ATTRIBUTE, string(1, name) + _number(_INTEGER, value) + _number(_KIND, _IS_INTEGER)
            )
        )
    return framed(NODE, content)


def constant(name: str, array: NDArray[Any]) -> bytes:
    """Return a graph's field that is a value it holds."""
    dims = b"".join(_number(_DIMS, size) for size in array.shape)
    element = next(element for element, kind in KINDS.items() if kind == array.dtype)
    data_type = _number(_DATA_TYPE, element)
    data = field(_RAW_DATA, array.astype(array.dtype.newbyteorder("<")).tobytes())
    return field(INITIALIZER, dims + data_type + string(_TENSOR_NAME, name) + data)


def value(number: int, name: str, element: int, rank: int | None = None) -> bytes:
    """Return a graph's field that is an input or output.

    Args:
        number: which of both.
        name: of the value.
        element: type of its elements.
        rank: number of its dimensions, if that is to be said; of each, nothing is.
    """
    shape = b"" if rank is None else field(2, field(1, b"") * rank)
    return field(number, string(1, name) + field(2, field(1, _number(1, element) + shape)))


def left_in(file: str, tensor: memoryview, tensor_at: int) -> Pieces:
    """Return a tensor's field whose data stay in their file, unless they are few.

    ONNX Runtime keeps a copy of each graph for every graph that it is in.

    Args:
        file: its name.
        tensor: the field's content.
        tensor_at: where that begins in the file.
    """
    pieces: Pieces = []
    for number, whole, content, at in fields(tensor):
        if number != _RAW_DATA or len(content) < _FEW_BYTES:
            pieces.append(whole)
            continue
        place = {"location": file, "offset": str(tensor_at + at), "length": str(len(content))}
        pieces += [field(_EXTERNAL, string(1, k) + string(2, v)) for k, v in place.items()]
        pieces.append(_number(_LOCATION, 1))  # the data are elsewhere
    return framed(INITIALIZER, pieces)


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _head(number: int, length: int) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(length)
