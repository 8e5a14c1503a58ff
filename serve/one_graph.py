"""Segments as one ONNX graph that runs the one it is asked for.

One graph is one session, and a session's threads are its own: those of six sessions must sleep
whenever their segment does not run, or they take the cores from each other, and to wake one takes
longer than a short text's segment. Threads of one session may stay awake from segment to segment.

The graph is a tree of `If` nodes over the input `segment`, with a segment's graph at each leaf; it
sees the inputs of all. Only the frames of protobuf's wire format are written here (ONNX's IR,
https://onnx.ai/onnx/repo-docs/IR.html), and weights stay in the segments' files, as ONNX's external
data: the server can do without ONNX's library.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

# Which segment to run, counted from 0: int64, a scalar.
SEGMENT: Final = "segment"

_FEW_BYTES = 256

# Fields of ONNX's messages.
_GRAPH, _OPSET, _FUNCTION = 7, 8, 25  # of a model
_NODE, _NAME, _INITIALIZER, _INPUT, _OUTPUT = 1, 2, 5, 11, 12  # of a graph
_RAW_DATA = 9  # of a tensor
_INT64 = 7  # of element types
_IS_GRAPH = 5  # of types of attributes
_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}  # by wire type

# To be written one after the other.
Pieces: TypeAlias = list[bytes | memoryview]


class _Segment(NamedTuple):
    """The parts of a segment's model: whole fields, tag and length included."""

    model: Pieces  # all but its graph and what it needs
    needs: list[bytes]  # versions of operator sets, functions
    inputs: dict[bytes, memoryview]
    outputs: dict[bytes, memoryview]
    body: Pieces  # the graph without its inputs


def one_graph(models: Mapping[str, memoryview]) -> bytes:
    """Return the model of a whole chain.

    Its inputs are `segment` and those of all segments; what a segment does not read may be
    anything. Its outputs are the segments'.

    Args:
        models: ONNX models with the same outputs, first to last, two or more; by their files,
            from which the weights will be read.

    Raises:
        ValueError: they cannot be joined; the message begins with the file that is wrong.
    """
    segments: list[_Segment] = []
    for file, model in models.items():
        try:
            segments.append(_taken_apart(model, file))
        except (IndexError, StopIteration, ValueError) as error:
            raise ValueError(f"{file}: no ONNX model") from error
        if list(segments[-1].outputs) != list(segments[0].outputs):
            raise ValueError(f"{file}: not the outputs of the segments before")
    inputs = {name: field for s in reversed(segments) for name, field in s.inputs.items()}
    graph = _choosing(segments, 0, within="")
    for k in range(1, len(segments)):
        graph += [_field(_INITIALIZER, _scalar(_bound(k), k))]
    graph += [_field(_INPUT, _string(1, SEGMENT) + _field(2, _scalar_type())), *inputs.values()]
    needs = dict.fromkeys(need for segment in segments for need in segment.needs)
    return b"".join([*segments[0].model, *needs, *_framed(_GRAPH, graph)])


def _taken_apart(model: memoryview, file: str) -> _Segment:
    rest: Pieces = []
    body: Pieces = []
    needs: list[bytes] = []
    graph, graph_at, inputs, outputs = memoryview(b""), 0, {}, {}
    for number, field, content, at in _fields(model):
        if number == _GRAPH:
            graph, graph_at = content, at
        elif number in (_OPSET, _FUNCTION):
            needs.append(bytes(field))
        else:
            rest.append(field)
    for number, field, content, at in _fields(graph):
        if number == _INITIALIZER:
            body += _framed(_INITIALIZER, _left_in(file, content, graph_at + at))
        elif number == _INPUT:
            inputs[_name_of(content)] = field
        else:
            body.append(field)
        if number == _OUTPUT:
            outputs[_name_of(content)] = field
    return _Segment(rest, needs, inputs, outputs, body)


def _left_in(file: str, tensor: memoryview, tensor_at: int) -> Pieces:
    """Return a tensor whose data stay in their file, unless they are few.

    ONNX Runtime keeps a copy of each graph for every graph that it is in.
    """
    pieces: Pieces = []
    for number, field, content, at in _fields(tensor):
        if number != _RAW_DATA or len(content) < _FEW_BYTES:
            pieces.append(field)
            continue
        place = {"location": file, "offset": str(tensor_at + at), "length": str(len(content))}
        pieces += [_field(13, _string(1, key) + _string(2, value)) for key, value in place.items()]
        pieces.append(_number(14, 1))  # the data are elsewhere
    return pieces


def _choosing(segments: Sequence[_Segment], first: int, within: str) -> Pieces:
    """Return the fields of a graph that chooses among these segments.

    Args:
        segments: neighbours.
        first: number of the first of them.
        within: put behind the names of its values. Names inside others must differ, but for those
            that go out of the whole.
    """
    if len(segments) == 1:
        return segments[0].body
    half = len(segments) // 2
    middle = first + half
    branches = {
        "then_branch": _choosing(segments[:half], first, f" before {middle}{within}"),
        "else_branch": _choosing(segments[half:], middle, f" from {middle}{within}"),
    }
    chosen = f"chosen at {middle}{within}"
    outputs = {name.decode() + within: field for name, field in segments[0].outputs.items()}
    choice: Pieces = [_node("If", [chosen], list(outputs))]
    for name, branch in branches.items():
        attribute = [_string(1, name), *_framed(6, branch), _number(20, _IS_GRAPH)]
        choice += _framed(5, attribute)
    return [
        _string(_NAME, f"segments from {first}"),
        _field(_NODE, _node("Less", [SEGMENT, _bound(middle)], [chosen])),
        *_framed(_NODE, choice),
        *(_renamed(field, name) for name, field in outputs.items()),
    ]


def _bound(segment: int) -> str:
    return f"{SEGMENT} {segment}"


def _framed(number: int, content: Pieces) -> Pieces:
    """Return a field whose content is in pieces."""
    return [_head(number, sum(map(len, content))), *content]


def _node(op: str, inputs: list[str], outputs: list[str]) -> bytes:
    names = [*(_string(1, name) for name in inputs), *(_string(2, name) for name in outputs)]
    return b"".join([*names, _string(4, op)])


def _scalar(name: str, value: int) -> bytes:
    return _number(2, _INT64) + _field(7, _varint(value)) + _string(8, name)


def _scalar_type() -> bytes:
    return _field(1, _number(1, _INT64) + _field(2, b""))


def _renamed(output: memoryview, name: str) -> bytes:
    """Return a value's field under another name."""
    ((number, _, value, _),) = _fields(output)
    rest = b"".join(bytes(field) for n, field, *_ in _fields(value) if n != 1)
    return _field(number, _string(1, name) + rest)


def _name_of(value: memoryview) -> bytes:
    return next(bytes(content) for number, _, content, _ in _fields(value) if number == 1)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview, int]]:
    """Yield each field's number, the whole field, its content, and where that begins."""
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


def _string(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    return _head(number, len(content)) + content


def _head(number: int, length: int) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(length)
