"""Segments as one ONNX graph, which runs the one it is asked for and may go on from there.

One graph is one session, and a session's threads are its own: those of six sessions must sleep
whenever their segment does not run, or they take the cores from each other, and to wake one takes
longer than a short text's segment. Threads of one session may stay awake from segment to segment.

The graph is a `Loop`. Its body is a tree of `If` nodes over the number of the segment, with a
segment's graph at each leaf. After a segment the loop ends unless the two largest logits of every
row lie closer together than the exit's gap: rows that surely stay there (`serve.criteria.gaps`) go
on without the host. Weights stay in the segments' files, as ONNX's external data.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from serve.manifest import HIDDEN, HIDDEN_OUT, KEEP, LOGITS
from serve.onnx_wire import (
    BOOL,
    FLOAT,
    FUNCTION,
    GRAPH,
    INITIALIZER,
    INPUT,
    INT64,
    NAME,
    OPSET,
    OUTPUT,
    Pieces,
    constant,
    element_of,
    fields,
    framed,
    left_in,
    name_of,
    node,
    rank_of,
    renamed,
    string,
    value,
)

# No value of a segment has a space in its name, and all here have, lest they be mixed up.

# Inputs beside the segments' own. The segment to begin with, counted from 0: int64, a scalar.
FIRST: Final = "first segment"
# Its hidden states, and which rows of them go on: those of the segments after it are the loop's.
FIRST_HIDDEN: Final = "first hidden"
FIRST_KEEP: Final = "first keep"
# (rows,) int64: 0, 1, 2, ... as many as rows run.
EVERY_ROW: Final = "every row"
# (segments,) float32: how far apart the two largest logits of some row must be, at least, for the
# loop to end after a segment. 0 ends it anyhow, infinity does not while logits are finite.
GAPS: Final = "all gaps"
# Output: the hidden states after the last segment that has run.
LAST_HIDDEN: Final = "last hidden"

# Values in the loop.
_SEGMENT, _NEXT, _GO_ON, _STAY = "this segment", "next segment", "go on", "rows that go on"


class _Segment(NamedTuple):
    """The parts of a segment's model: whole fields, tag and length included."""

    model: Pieces  # all but its graph and what it needs
    needs: list[bytes]  # versions of operator sets, functions
    inputs: dict[str, memoryview]
    outputs: dict[str, memoryview]
    body: Pieces  # the graph without its inputs and outputs


def every(said: str) -> str:
    """Return the output that holds what heads say under this name: (segments that ran, ...)."""
    return f"every {said}"


def one_graph(models: Mapping[str, memoryview], num_labels: int) -> bytes:
    """Return the model of a whole chain.

    Its inputs are those named above and those of the segments, but for `HIDDEN` and `KEEP`; what a
    segment does not read may be anything. Its outputs are `LAST_HIDDEN` and `every` other output
    of the segments.

    Args:
        models: ONNX models with the same outputs, first to last; by their files, from which the
            weights will be read.
        num_labels: of rows whose logits are (rows, labels), two or more. With 0, logits are not
            told apart: gaps must be 0 or infinity.

    Raises:
        ValueError: they cannot be joined; the message begins with the file that is wrong.
    """
    segments: list[_Segment] = []
    for file, model in models.items():
        try:
            segments.append(_taken_apart(model, file))
        except (IndexError, StopIteration, ValueError) as error:
            raise ValueError(f"{file}: no ONNX model") from error
        if HIDDEN_OUT not in segments[-1].outputs:
            raise ValueError(f"{file}: no output {HIDDEN_OUT}, so that it is no segment")
        if list(segments[-1].outputs) != list(segments[0].outputs):
            raise ValueError(f"{file}: not the outputs of the segments before")
    needs = dict.fromkeys(need for segment in segments for need in segment.needs)
    graph = _loop(segments, num_labels)
    return b"".join([*segments[0].model, *needs, *framed(GRAPH, graph)])


def _taken_apart(model: memoryview, file: str) -> _Segment:
    rest: Pieces = []
    body: Pieces = []
    needs: list[bytes] = []
    graph, graph_at, inputs, outputs = memoryview(b""), 0, {}, {}
    for number, whole, content, at in fields(model):
        if number == GRAPH:
            graph, graph_at = content, at
        elif number in (OPSET, FUNCTION):
            needs.append(bytes(whole))
        else:
            rest.append(whole)
    for number, whole, content, at in fields(graph):
        if number == INITIALIZER:
            body += left_in(file, content, graph_at + at)
        elif number == INPUT:
            inputs[name_of(content)] = whole
        elif number == OUTPUT:
            element_of(content)  # it must have a type
            outputs[name_of(content)] = whole
        else:
            body.append(whole)
    return _Segment(rest, needs, inputs, outputs, body)


def _loop(segments: Sequence[_Segment], num_labels: int) -> Pieces:
    """Return the fields of the graph that runs one segment after the other."""
    outputs = segments[0].outputs
    hidden = _content(outputs[HIDDEN_OUT])
    element, rank = element_of(hidden), rank_of(hidden)
    said = {name: whole for name, whole in outputs.items() if name != HIDDEN_OUT}
    body: Pieces = [
        *_choosing(segments, 0, within=""),
        *_going_on(num_labels),
        value(INPUT, "number of turn", INT64, 0),
        value(INPUT, "went on", BOOL, 0),
        value(INPUT, _SEGMENT, INT64, 0),
        value(INPUT, HIDDEN, element, rank),
        value(INPUT, KEEP, INT64, 1),
        value(OUTPUT, _GO_ON, BOOL, 0),
        value(OUTPUT, _NEXT, INT64, 0),
        value(OUTPUT, HIDDEN_OUT, element, rank),
        value(OUTPUT, _STAY, INT64, 1),
        *said.values(),
    ]
    inputs = {name: whole for s in segments for name, whole in s.inputs.items()}
    return [
        string(NAME, "segments"),
        *node(
            "Loop",
            [_number(len(segments)), "", FIRST, FIRST_HIDDEN, FIRST_KEEP],
            ["last segment", LAST_HIDDEN, "last keep", *map(every, said)],
            graphs={"body": body},
        ),
        *(constant(_number(k), np.array(k, np.int64)) for k in range(1, len(segments) + 1)),
        constant("two of them", np.array([2], np.int64)),
        constant("plus, minus", np.array([1, -1], np.float32)),
        value(INPUT, FIRST, INT64, 0),
        value(INPUT, FIRST_HIDDEN, element, rank),
        value(INPUT, FIRST_KEEP, INT64, 1),
        value(INPUT, EVERY_ROW, INT64, 1),
        value(INPUT, GAPS, FLOAT, 1),
        *(whole for name, whole in inputs.items() if name not in (HIDDEN, KEEP)),
        value(OUTPUT, LAST_HIDDEN, element, rank),
        *(_every(name, _content(whole)) for name, whole in said.items()),
    ]


def _going_on(num_labels: int) -> Pieces:
    """Return the nodes at the end of a turn."""
    least = [
        *node("TopK", [LOGITS, "two of them"], ["two largest", "their labels"]),
        *node("MatMul", ["two largest", "plus, minus"], ["between them"]),
    ]
    return [
        # No less than 0 either way: an exit whose gap is 0 ends the loop.
        *(least if num_labels else node("Abs", [LOGITS], ["between them"])),
        *node("ReduceMax", ["between them"], ["widest gap"], integers={"keepdims": 0}),
        *node("Gather", [GAPS, _SEGMENT], ["own gap"]),
        *node("Less", ["widest gap", "own gap"], [_GO_ON]),
        *node("Add", [_SEGMENT, _number(1)], [_NEXT]),
        *node("Identity", [EVERY_ROW], [_STAY]),
    ]


def _choosing(segments: Sequence[_Segment], first: int, within: str) -> Pieces:
    """Return the fields of a graph that chooses among these segments, without its outputs.

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
        "then_branch": (segments[:half], first, f" before {middle}{within}"),
        "else_branch": (segments[half:], middle, f" from {middle}{within}"),
    }
    chosen = f"chosen at {middle}{within}"
    return [
        string(NAME, f"segments from {first}"),
        *node("Less", [_SEGMENT, _number(middle)], [chosen]),
        *node(
            "If",
            [chosen],
            [name + within for name in segments[0].outputs],
            graphs={
                name: [*_choosing(*branch), *_outputs(*branch)] for name, branch in branches.items()
            },
        ),
    ]


def _outputs(segments: Sequence[_Segment], first: int, within: str) -> Pieces:
    named = segments[0].outputs.items()
    if len(segments) == 1:
        return [whole for _, whole in named]
    return [renamed(whole, name + within) for name, whole in named]


def _every(name: str, said: memoryview) -> bytes:
    rank = rank_of(said)
    return value(OUTPUT, every(name), element_of(said), None if rank is None else rank + 1)


def _number(number: int) -> str:
    return f"number {number}"


def _content(whole: memoryview) -> memoryview:
    ((_, _, content, _),) = fields(whole)
    return content
