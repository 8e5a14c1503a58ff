"""The files that an ONNX graph refers to, read without the package onnx.

A graph is a protobuf message, and ONNX Runtime opens every file that it names. The numbers of
fields are those of onnx.proto, which may not change.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from serve.errors import InvalidBundle

# A joined graph of twelve layers has 0.4 MB.
MOST_BYTES = 64 << 20
# Message -> number of a field that is followed -> message in that field.
_FOLLOWED = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Function": {7: "Node", 11: "Attribute"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Node": {4: "OpType", 5: "Attribute"},
    "Attribute": {
        5: "Tensor",
        6: "Graph",
        10: "Tensor",
        11: "Graph",
        22: "SparseTensor",
        23: "SparseTensor",
    },
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Tensor": {13: "Entry"},
}
_KEY, _VALUE = 1, 2
_LOCATION = b"location"
# Its content is compiled code for an accelerator, in a file or in the graph.
_COMPILED = b"EPContext"
# Graphs inside nodes of graphs: joined graphs have three levels.
_MOST_LEVELS = 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def check_graph(folder: Path, name: str, listed: frozenset[str]) -> None:
    """Raise `InvalidBundle` unless all files that the graph refers to are listed.

    Args:
        folder: the bundle.
        name: path of the graph inside the bundle.
        listed: paths of the bundle's verified files.
    """
    where = f"{folder}/{name}"
    # By another suffix ONNX Runtime would read another format.
    if not name.endswith(".onnx"):
        raise InvalidBundle(f"{where}: a graph's file must end in .onnx")
    if (folder / name).stat().st_size > MOST_BYTES:
        raise InvalidBundle(
            f"{where} has more than {MOST_BYTES >> 20} MiB: weights belong beside it"
        )
    content = memoryview((folder / name).read_bytes())
    try:
        for location in _locations(content, "Model", _MOST_LEVELS):
            _check_location(where, PurePosixPath(name).parent, location, listed)
    except (IndexError, ValueError) as error:
        raise InvalidBundle(f"{where} is no ONNX graph: {error}") from None


def _check_location(
    where: str, beside: PurePosixPath, location: bytes, listed: frozenset[str]
) -> None:
    text = location.decode(errors="replace")
    if text == PurePosixPath(text).name and str(beside / text) in listed:
        return
    raise InvalidBundle(
        f"{where} refers to a file {text[:200]!r}; it may refer only to files beside it that "
        "manifest.json lists"
    )


def _locations(message: memoryview, kind: str, levels: int) -> Iterator[bytes]:
    """Yield every location of external data in a message and in those that it contains."""
    if not levels:
        raise ValueError("its messages are nested too deeply")
    for number, content in _fields(message):
        inner = _FOLLOWED[kind].get(number)
        if inner is None:
            continue
        if inner == "OpType":
            if content == _COMPILED:
                raise ValueError(f"it has a node {_COMPILED.decode()}, which holds compiled code")
        elif inner == "Entry":
            yield from _location(content)
        else:
            yield from _locations(content, inner, levels - 1)


def _location(entry: memoryview) -> Iterator[bytes]:
    fields = list(_fields(entry))
    if any(number == _KEY and content == _LOCATION for number, content in fields):
        yield from (bytes(content) for number, content in fields if number == _VALUE)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of the fields of bytes; fields of numbers are skipped.

    Raises:
        ValueError: the message is cut off, or has what onnx.proto has not.
        IndexError: a number is cut off.
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        # Protobuf's own readers would drop the bits above.
        if tag >= 1 << 32:
            raise ValueError("it has a field with too large a number")
        form = tag & 7
        if form == _VARINT:
            _, at = _varint(message, at)
            continue
        if form == _BYTES:
            size, at = _varint(message, at)
        elif form in (_FIXED64, _FIXED32):
            size = 8 if form == _FIXED64 else 4
        else:
            raise ValueError(f"it has a field of the form {form}")
        if size > len(message) - at:
            raise ValueError("it is cut off")
        if form == _BYTES:
            yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a number and the place behind it."""
    value = 0
    for place in range(10):
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("it has a number of more than ten bytes")
