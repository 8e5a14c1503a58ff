"""Tensors of the Open Inference Protocol: checked when read; bytes little-endian, row-major."""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.api.json_decoding import MAX_ELEMENTS
from serve.classifier.classify_request import MAX_LIST
from serve.dialects.oip.schemas import BYTES, INPUTS, TensorSpec
from serve.errors import InvalidTensor

# The elements of a BYTES tensor stand in its bytes one after the other.
_LENGTH_BYTES: Final = 4
_HOW: Final = "each element is its length, four bytes in little-endian order, and then its bytes"
_MAX_QUOTED = 64
_MAX_SIZE = 2**31 - 1
_NARROW = ", as many as 32-bit integers take; send 64-bit ones"


class Tensor(NamedTuple):
    """A tensor.

    Attributes:
        name: the name of the input or output.
        datatype: the protocol's type, such as FP32.
        shape: the sizes, rows first.
        values: a flat list of texts for BYTES, else an array of this shape.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: NDArray[Any] | list[str]


def read_tensor(
    name: str, datatype: str, shape: Sequence[int], data: bytes | Sequence[Any]
) -> Tensor:
    """Return an input, of the name, datatype and shape that the client states.

    `data` is the tensor as bytes, or its elements in a flat list; texts may be bytes in it.

    Raises:
        InvalidTensor: there is no such input, or it is none of its type and shape.
    """
    spec = INPUTS.get(name)
    if spec is None:
        raise InvalidTensor(f"inputs: there is no {quoted(name)}; there are {', '.join(INPUTS)}")
    if datatype != spec.datatype:
        raise InvalidTensor(f"{name}: the datatype must be {spec.datatype}, not {quoted(datatype)}")
    check_shape(spec, shape)
    if not isinstance(data, bytes) and len(data) != math.prod(shape):
        raise InvalidTensor(
            f"{name}: the shape {list(shape)} has {math.prod(shape)} elements, the data {len(data)}"
        )
    if spec.datatype == BYTES:
        elements = _split(name, data, shape[0]) if isinstance(data, bytes) else data
        return Tensor(name, datatype, (shape[0], 1), _texts(name, elements))
    array = _from_bytes(name, data, shape) if isinstance(data, bytes) else _integers(name, data)
    return Tensor(name, datatype, tuple(shape), array.reshape(shape))


def to_bytes(tensor: Tensor) -> bytes:
    """Return a tensor's elements as bytes."""
    if isinstance(tensor.values, list):
        elements = [text.encode() for text in tensor.values]
        return b"".join(
            part
            for element in elements
            for part in (len(element).to_bytes(_LENGTH_BYTES, "little"), element)
        )
    return tensor.values.tobytes()


def quoted(name: str) -> str:
    """Return what a client has sent, cut to a sane length."""
    return repr(name[:_MAX_QUOTED])


def check_shape(spec: TensorSpec, shape: Sequence[int]) -> None:
    """Check what a shape says, before any element is looked at.

    Raises:
        InvalidTensor: no input is of this shape.
    """
    if shape and max(map(abs, shape)) > _MAX_SIZE:
        raise InvalidTensor(f"{spec.name}: the shape must not have a size above {_MAX_SIZE}")
    rank, of_texts = len(shape), spec.datatype == BYTES
    fits = (rank == 1 or (rank == 2 and shape[1] == 1)) if of_texts else rank == 2
    if not fits:
        sizes = "[rows, 1] or [rows]" if of_texts else "[rows, tokens]"
        raise InvalidTensor(f"{spec.name}: the shape must be {sizes}, not {list(shape)}")
    if not 1 <= shape[0] <= MAX_LIST:
        raise InvalidTensor(f"{spec.name}: must have 1 to {MAX_LIST} rows, not {list(shape)}")
    if rank == 2 and shape[1] < 1:
        raise InvalidTensor(f"{spec.name}: a row must not be empty; the shape is {list(shape)}")
    if math.prod(shape) > MAX_ELEMENTS:
        raise InvalidTensor(
            f"{spec.name}: must have at most {MAX_ELEMENTS} elements, not {math.prod(shape)}"
        )


def _split(name: str, data: bytes, number: int) -> list[bytes]:
    """Return so many elements of a BYTES tensor from its bytes."""
    elements, place = [], 0
    for i in range(number):
        begin = place + _LENGTH_BYTES
        length = int.from_bytes(data[place:begin], "little")
        if begin + length > len(data):
            raise InvalidTensor(
                f"{name}[{i}]: the bytes end before the element does: its length is "
                f"{data[place:begin].hex(' ') or 'missing'}, and {max(0, len(data) - begin)} bytes "
                f"follow; {_HOW}"
            )
        place = begin + length
        elements.append(data[begin:place])
    if place < len(data):
        raise InvalidTensor(
            f"{name}: {len(data) - place} bytes are left after the last of {number} elements"
        )
    return elements


def _texts(name: str, elements: Sequence[Any]) -> list[str]:
    texts = []
    for i, element in enumerate(elements):
        if isinstance(element, bytes):
            try:
                texts.append(element.decode())
            except UnicodeDecodeError as error:
                raise InvalidTensor(f"{name}[{i}]: is not UTF-8 at byte {error.start}") from None
        elif isinstance(element, str):
            texts.append(element)
        else:
            raise InvalidTensor(f"{name}[{i}]: must be a text")
    return texts


def _from_bytes(name: str, data: bytes, shape: Sequence[int]) -> NDArray[np.int64]:
    if len(data) != 8 * math.prod(shape):
        narrow = len(data) == 4 * math.prod(shape)
        raise InvalidTensor(
            f"{name}: the shape {list(shape)} takes 8 bytes for each of {math.prod(shape)} "
            f"elements, the data has {len(data)}{_NARROW if narrow else ''}"
        )
    return np.frombuffer(data, "<i8")


def _integers(name: str, values: Sequence[Any]) -> NDArray[np.int64]:
    if not set(map(type, values)) <= {int}:
        raise InvalidTensor(f"{name}: must hold integers only")
    try:
        return np.array(values, np.int64)
    except OverflowError:
        raise InvalidTensor(f"{name}: has a number of more than 64 bits") from None
