"""The node of `serve.runtime.one_graph` that runs a segment, or does not."""

from typing import NamedTuple

import numpy as np

from serve.bundle.manifest import HIDDEN_OUT, LOGITS
from serve.runtime.branches import SegmentOutputs, either
from serve.runtime.graph_ports import FIRST, FIRST_UNASKED, GAPS, STARTS, UNASKED
from serve.runtime.onnx_wire import BOOL, OUTPUT
from serve.runtime.onnx_writing import Pieces, constant, node, value
from serve.runtime.segment_model import SegmentModel

_OWN_GAP, _UNASKED_HERE, _OWN = "own gap", "unasked here", "own number"
_GOES_ON, _BEGINS_NEXT, _HIDDEN_HERE = "goes on", "begins next", "hidden here"


class Place(NamedTuple):
    """Where a segment stands.

    Attributes:
        number: counted from 0.
        after: the segment that follows, None at the last.
        ends_stretch: whether that one lies in another stretch.
    """

    number: int
    after: SegmentModel | None
    ends_stretch: bool


def runs(number: int) -> str:
    """Return the value that tells whether a segment runs."""
    return f"segment {number} runs" if number else STARTS


def stretch_runs(number: int) -> str:
    """Return the value that tells whether the stretch runs that begins with a segment."""
    return f"stretch from {number} runs"


def said_by(number: int, name: str) -> str:
    """Return the value that holds what a segment's head says under a name."""
    return f"{name} of {number}"


def left_by(number: int) -> str:
    """Return the value that holds the hidden states after a segment."""
    return f"hidden left by {number}"


def branch(segment: SegmentModel, place: Place, outputs: SegmentOutputs, num_labels: int) -> Pieces:
    """Return the node.

    It gives what is `said_by` the segment, what is `left_by` it, and whether the next one `runs`;
    at the end of a stretch, whether the next one or any later one does: `stretch_runs`.

    Args:
        segment: its model.
        place: where it stands.
        outputs: of any segment.
        num_labels: as for `serve.runtime.one_graph.one_graph`.
    """
    number, after, ends_stretch = place
    given = [said_by(number, name) for name in outputs.said]
    then = [*segment.layers, *_asking(segment, place, outputs, num_labels)]
    idle = outputs.no_rows("elsewhere")
    if after:
        follows = stretch_runs if ends_stretch else runs
        given += [follows(number + 1), left_by(number)]
        then.append(outputs.like(HIDDEN_OUT, OUTPUT, HIDDEN_OUT))
        idle += _entering(after, place, outputs)
    return either(runs(number), given, then, idle)


def _asking(
    segment: SegmentModel, place: Place, outputs: SegmentOutputs, num_labels: int
) -> Pieces:
    """Return a segment's head, if somebody asks it, and whether the next segment runs."""
    given = [f"{name} here" for name in outputs.said]
    said: Pieces = [outputs.like(name, OUTPUT, f"{name} here") for name in outputs.said]
    head, nothing = _head(segment, outputs), outputs.no_rows("unasked")
    if place.after:
        given.append(_GOES_ON)
        said.append(value(OUTPUT, _GOES_ON, BOOL, 0))
        head += _going_on(num_labels)
        nothing.append(constant("goes on unasked", np.array(True)))
        nothing.append(value(OUTPUT, "goes on unasked", BOOL, 0))
    unasked = UNASKED if place.number else FIRST_UNASKED
    return [
        constant(_OWN, np.array(place.number, np.int64)),
        *node("Gather", [unasked, _OWN], [_UNASKED_HERE]),
        *either(_UNASKED_HERE, given, nothing, head),
        *said,
    ]


def _head(segment: SegmentModel, outputs: SegmentOutputs) -> Pieces:
    parts = [*segment.head]
    for name in outputs.said:
        own = name if name in segment.said_by_head else f"{name} asked"
        if own != name:
            parts += node("Identity", [name], [own])
        parts.append(outputs.like(name, OUTPUT, own))
    return parts


def _between_largest(num_labels: int) -> Pieces:
    """Return how far apart a row's two largest logits are: no less than 0."""
    if not num_labels:
        return node("Abs", [LOGITS], ["between them"])
    if num_labels == 2:
        # Each way round; TopK would take longer than all else that is done here.
        each_way = constant("each way", np.array([[1, -1], [-1, 1]], np.float32))
        return [each_way, *node("MatMul", [LOGITS, "each way"], ["between them"])]
    return [
        constant("two of them", np.array([2], np.int64)),
        constant("plus, minus", np.array([1, -1], np.float32)),
        *node("TopK", [LOGITS, "two of them"], ["two largest", "their labels"]),
        *node("MatMul", ["two largest", "plus, minus"], ["between them"]),
    ]


def _going_on(num_labels: int) -> Pieces:
    """Return whether every row surely stays, told by logits; not where the gap is 0."""
    return [
        *node("Gather", [GAPS, _OWN], [_OWN_GAP]),
        *_between_largest(num_labels),
        *node("ReduceMax", ["between them"], ["widest gap"], integers={"keepdims": 0}),
        *node("Less", ["widest gap", _OWN_GAP], ["goes on asked"]),
        value(OUTPUT, "goes on asked", BOOL, 0),
    ]


def _entering(after: SegmentModel, place: Place, outputs: SegmentOutputs) -> Pieces:
    """Return whether the run begins with the next segment, and what it then begins with."""
    chosen = [*after.entry, outputs.like(HIDDEN_OUT, OUTPUT, after.entered)]
    nothing = outputs.nothing_like(HIDDEN_OUT, "hidden elsewhere")
    parts = [
        constant("number of the next", np.array(place.number + 1, np.int64)),
        *node("Equal", [FIRST, "number of the next"], [_BEGINS_NEXT]),
        *either(_BEGINS_NEXT, [_HIDDEN_HERE], chosen, nothing),
    ]
    follows = _BEGINS_NEXT
    if place.ends_stretch:
        follows = "begins further on"
        parts += node("GreaterOrEqual", [FIRST, "number of the next"], [follows])
    return [
        *parts,
        value(OUTPUT, follows, BOOL, 0),
        outputs.like(HIDDEN_OUT, OUTPUT, _HIDDEN_HERE),
    ]
