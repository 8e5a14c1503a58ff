"""Segments as one ONNX graph, which runs the one it is asked for and may go on from there.

One graph is one session, and a session's threads are its own: those of six sessions must sleep
whenever their segment does not run, or they take the cores from each other, and to wake one takes
longer than a short text's segment. Threads of one session may stay awake from segment to segment.

Each segment is a branch of an `If`; the others' is the empty one. After a segment the next runs
unless its exit ends the run: if nobody asks the exit, its head does not run either; if somebody
does, the run ends unless the two largest logits of every row lie closer together than the exit's
gap (`serve.criteria.gaps`): rows that surely stay there go on without the host. Weights stay in
the segments' files, as ONNX's external data.

A row of `If` nodes costs 1 to 2 microseconds for each. A `Loop` over a tree of them, which it was
before, takes 3 more per segment that runs, and layouts of memory (`serve.sessions`) save it less.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from serve.manifest import HIDDEN, HIDDEN_OUT, KEEP, LOGITS
from serve.onnx_wire import (
    BOOL,
    FLOAT,
    GRAPH,
    INPUT,
    INT64,
    NAME,
    OUTPUT,
    element_of,
    fields,
    rank_of,
)
from serve.onnx_writing import NUMPY_TYPES, Pieces, constant, framed, node, string, value
from serve.segment_model import SegmentModel, taken_apart

# No value of a segment has a space in its name, and all here have, lest they be mixed up.

# Inputs beside the segments' own. The segment to begin with, counted from 0: int64, a scalar; 0 if
# it is left out.
FIRST: Final = "first segment"
# The hidden states it begins with, and which rows of them go on.
FIRST_HIDDEN: Final = "first hidden"
FIRST_KEEP: Final = "first keep"
# (segments or more,) float32: how far apart the two largest logits of some row must be, at least,
# for the run to end after a segment. 0 ends it anyhow; infinity does not, and its head does not
# run. More than one per segment are not looked at.
GAPS: Final = "all gaps"

_ENTRY_NAMES = {HIDDEN: FIRST_HIDDEN, KEEP: FIRST_KEEP}
_OWN_GAP, _UNASKED_HERE = "own gap", "unasked here"
_AGAIN, _OWN = "input again", "own number"
_GOES_ON, _BEGINS_NEXT, _HIDDEN_HERE = "goes on", "begins next", "hidden here"


def every(said: str) -> str:
    """Return the output that holds what heads say under this name.

    It is (heads that ran * rows, ...): what the first of them says of all rows, and so on.
    """
    return f"every {said}"


def hidden_after(segment: int) -> str:
    """Return the output that holds the hidden states after a segment but the last; if it ran."""
    return f"hidden after {segment}"


def one_graph(models: Mapping[str, memoryview], num_labels: int) -> bytes:
    """Return the model of a whole chain.

    Its inputs are those named above and those of the segments, but for `HIDDEN` and `KEEP`; those
    that no segment reads which runs may be left out: each that is given costs a microsecond or
    more. Its outputs are `hidden_after` each segment, and `every` other output of the segments.

    Args:
        models: ONNX models with the same outputs, first to last; by their files, from which the
            weights will be read.
        num_labels: of rows whose logits are (rows, labels), two or more. With 0, logits are not
            told apart: gaps that are asked must be 0, or larger than any logit.

    Raises:
        ValueError: they cannot be joined; the message begins with the file that is wrong.
    """
    segments: list[SegmentModel] = []
    operators: dict[str, bytes] = {}
    for number, (file, model) in enumerate(models.items()):
        carried = hidden_after(number - 1) if number else None
        segments.append(taken_apart(model, file, carried, _ENTRY_NAMES))
        if list(segments[-1].outputs) != list(segments[0].outputs):
            raise ValueError(f"{file}: not the outputs of the segments before")
        for domain, version in segments[-1].operators.items():
            if operators.setdefault(domain, version) != version:
                named = domain or "ai.onnx"
                raise ValueError(f"{file}: another version of {named} than the segments before")
    functions = dict.fromkeys(function for segment in segments for function in segment.functions)
    graph = framed(GRAPH, _chain(segments, num_labels))
    return b"".join([*segments[0].model, *operators.values(), *functions, *graph])


def _chain(segments: Sequence[SegmentModel], num_labels: int) -> Pieces:
    """Return the fields of the graph that runs one segment after the other."""
    outputs = _Outputs(segments[0])
    inputs = {name: whole for s in segments for name, whole in s.inputs.items()}
    parts: Pieces = [
        string(NAME, "segments"),
        constant("the first", np.array(0, np.int64)),
        *node("Equal", [FIRST, "the first"], [_runs(0)]),
    ]
    if len(segments[0].inputs) % 2:
        parts += node("Identity", [next(iter(segments[0].inputs))], [_AGAIN])
    for number, after in enumerate([*segments[1:], None]):
        parts += _segment(number, segments[number], after, outputs, num_labels)
    for name in outputs.said:
        said = [_said_by(number, name) for number in range(len(segments))]
        parts += node("Concat", said, [every(name)], integers={"axis": 0})
    own = [(name, *_kind(whole)) for name, whole in inputs.items() if name not in _ENTRY_NAMES]
    hidden = FIRST_HIDDEN, *outputs.kinds[HIDDEN_OUT]
    for name, element, rank in (*own, hidden, (FIRST_KEEP, INT64, 1)):
        parts += [_no_rows(name, element, rank), value(INPUT, name, element, rank)]
    return [
        *parts,
        constant(FIRST, np.array(0, np.int64)),
        value(INPUT, FIRST, INT64, 0),
        value(INPUT, GAPS, FLOAT, 1),
        *(outputs.like(HIDDEN_OUT, OUTPUT, hidden_after(n)) for n in range(len(segments) - 1)),
        *(outputs.like(name, OUTPUT, every(name)) for name in outputs.said),
    ]


class _Outputs:
    """What segments give, by type and number of dimensions.

    Sizes are not passed on: of equal ones, ONNX Runtime may put a value where another was, and
    none of these has rows where its segment does not run.

    Attributes:
        said: what heads say.
        kinds: type and number of dimensions of each.
    """

    def __init__(self, segment: SegmentModel) -> None:
        self.said = [name for name in segment.outputs if name != HIDDEN_OUT]
        self.kinds = {name: _kind(whole) for name, whole in segment.outputs.items()}

    def like(self, output: str, field: int, name: str) -> bytes:
        """Return an input or output that is like one of the segments'."""
        return value(field, name, *self.kinds[output])

    def no_rows(self, where: str) -> Pieces:
        """Return what a graph says in which no head runs."""
        parts: Pieces = []
        for name in self.said:
            parts += self.nothing_like(name, f"{name} {where}")
        return parts

    def nothing_like(self, output: str, name: str) -> Pieces:
        """Return a graph's output that has no rows."""
        return [_no_rows(name, *self.kinds[output]), self.like(output, OUTPUT, name)]


def _kind(whole: memoryview) -> tuple[int, int | None]:
    """Return type and number of dimensions of a model's input or output."""
    ((_, _, content, _),) = fields(whole)
    return element_of(content), rank_of(content)


def _no_rows(name: str, element: int, rank: int | None) -> bytes:
    """Return a value of no rows."""
    return constant(name, np.zeros([0, *[1] * ((rank or 1) - 1)], NUMPY_TYPES[element]))


def _segment(
    number: int,
    segment: SegmentModel,
    after: SegmentModel | None,
    outputs: _Outputs,
    num_labels: int,
) -> Pieces:
    """Return the node that runs a segment, or does not.

    Args:
        number: of the segment.
        segment: its model.
        after: that of the next one, if there is one.
        outputs: of any segment.
        num_labels: as for `one_graph`.
    """
    given = [_said_by(number, name) for name in outputs.said]
    runs = [*segment.layers, *_asking(number, segment, after is None, outputs, num_labels)]
    idle = outputs.no_rows("elsewhere")
    if after:
        given += [_runs(number + 1), hidden_after(number)]
        runs.append(outputs.like(HIDDEN_OUT, OUTPUT, HIDDEN_OUT))
        idle += _entering(number + 1, after, outputs)
    return _either(_runs(number), given, runs, idle)


def _asking(
    number: int, segment: SegmentModel, is_last: bool, outputs: _Outputs, num_labels: int
) -> Pieces:
    """Return a segment's head, if somebody asks it, and whether the next segment runs."""
    given = [f"{name} here" for name in outputs.said]
    said: Pieces = [outputs.like(name, OUTPUT, f"{name} here") for name in outputs.said]
    head, nothing = _head(segment, outputs), outputs.no_rows("unasked")
    if not is_last:
        given.append(_GOES_ON)
        said.append(value(OUTPUT, _GOES_ON, BOOL, 0))
        head += _going_on(num_labels)
        nothing.append(constant("goes on unasked", np.array(True)))
        nothing.append(value(OUTPUT, "goes on unasked", BOOL, 0))
    return [
        *_own_number(number, evened=number == 0 and len(segment.inputs) % 2 == 1),
        *node("Gather", [GAPS, _OWN], [_OWN_GAP]),
        *node("IsInf", [_OWN_GAP], [_UNASKED_HERE]),
        *_either(_UNASKED_HERE, given, nothing, head),
        *said,
    ]


def _own_number(number: int, evened: bool) -> Pieces:
    """Return the number of a segment.

    Args:
        number: it.
        evened: whether an input is to be read once more for it: of segments that read rows and
            tokens an even number of times, both cancel out where layouts of memory are told
            apart, see `serve.sessions`.
    """
    if not evened:
        return [constant(_OWN, np.array(number, np.int64))]
    return [
        constant("the number", np.array(number, np.int64)),
        *node("Size", [_AGAIN], ["no less"]),
        *node("Min", ["the number", "no less"], [_OWN]),
    ]


def _head(segment: SegmentModel, outputs: _Outputs) -> Pieces:
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
        *_between_largest(num_labels),
        *node("ReduceMax", ["between them"], ["widest gap"], integers={"keepdims": 0}),
        *node("Less", ["widest gap", _OWN_GAP], ["goes on asked"]),
        value(OUTPUT, "goes on asked", BOOL, 0),
    ]


def _entering(number: int, segment: SegmentModel, outputs: _Outputs) -> Pieces:
    """Return whether the run begins with a segment, and what it then begins with."""
    chosen = [*segment.entry, outputs.like(HIDDEN_OUT, OUTPUT, segment.entered)]
    nothing = outputs.nothing_like(HIDDEN_OUT, "hidden elsewhere")
    return [
        constant("number of the next", np.array(number, np.int64)),
        *node("Equal", [FIRST, "number of the next"], [_BEGINS_NEXT]),
        *_either(_BEGINS_NEXT, [_HIDDEN_HERE], chosen, nothing),
        value(OUTPUT, _BEGINS_NEXT, BOOL, 0),
        outputs.like(HIDDEN_OUT, OUTPUT, _HIDDEN_HERE),
    ]


def _either(condition: str, given: Sequence[str], then: Pieces, otherwise: Pieces) -> Pieces:
    graphs = {"then_branch": then, "else_branch": otherwise}
    named = {branch: [string(NAME, branch), *graph] for branch, graph in graphs.items()}
    return node("If", [condition], given, graphs=named)


def _runs(number: int) -> str:
    return f"segment {number} runs"


def _said_by(number: int, name: str) -> str:
    return f"{name} of {number}"
