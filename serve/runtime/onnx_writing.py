"""ONNX models written as bytes, in pieces, with weights that stay where they are.

The counterpart of `serve.runtime.onnx_wire`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.runtime.onnx_wire import (
    ATTRIBUTE,
    BOOL,
    DATA_TYPE,
    DIMS,
    EXTERNAL,
    FLOAT,
    FLOAT16,
    GIVES,
    INITIALIZER,
    INT64,
    INTEGER,
    KIND,
    LENGTH_DELIMITED,
    LOCATION,
    NODE,
    OP,
    RAW_DATA,
    READS,
    SUBGRAPH,
    TENSOR_NAME,
    Node,
    fields,
)

NUMPY_TYPES = {FLOAT: np.float32, INT64: np.int64, FLOAT16: np.float16, BOOL: np.bool_}

_IS_INTEGER, _IS_GRAPH = 2, 5  # kinds of attributes
_FEW_BYTES = 256

# To be written one after the other.
Pieces: TypeAlias = list[bytes | memoryview]


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
    content: Pieces = [string(READS, name) for name in inputs]
    content += [string(GIVES, name) for name in outputs]
    content.append(string(OP, op))
    for name, graph in (graphs or {}).items():
        attribute = [string(1, name), *framed(SUBGRAPH, graph), _number(KIND, _IS_GRAPH)]
        content += framed(ATTRIBUTE, attribute)
    for name, value in (integers or {}).items():
        content.append(
            field(ATTRIBUTE, string(1, name) + _number(INTEGER, value) + _number(KIND, _IS_INTEGER))
        )
    return framed(NODE, content)


def constant(name: str, array: NDArray[Any]) -> bytes:
    """Return a graph's field that is a value it holds."""
    dims = b"".join(_number(DIMS, size) for size in array.shape)
    element = next(element for element, kind in NUMPY_TYPES.items() if kind == array.dtype)
    data_type = _number(DATA_TYPE, element)
    data = field(RAW_DATA, array.astype(array.dtype.newbyteorder("<")).tobytes())
    return field(INITIALIZER, dims + data_type + string(TENSOR_NAME, name) + data)


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
        if number != RAW_DATA or len(content) < _FEW_BYTES:
            pieces.append(whole)
            continue
        place = {"location": file, "offset": str(tensor_at + at), "length": str(len(content))}
        pieces += [field(EXTERNAL, string(1, k) + string(2, v)) for k, v in place.items()]
        pieces.append(_number(LOCATION, 1))  # the data are elsewhere
    return framed(INITIALIZER, pieces)


def reading(node: Node, names: Mapping[str, str]) -> bytes | memoryview:
    """Return a node's field that reads some values under other names; not so graphs inside it."""
    if names.keys().isdisjoint(node.inputs):
        return node.whole
    ((_, _, content, _),) = fields(node.whole)
    kept: Pieces = [whole for number, whole, *_ in fields(content) if number != READS]
    return b"".join(framed(NODE, [*(string(READS, names.get(n, n)) for n in node.inputs), *kept]))


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
    return _varint(number << 3 | LENGTH_DELIMITED) + _varint(length)
