"""Segments as one ONNX graph, which runs the one it is asked for and may go on from there.

One graph is one session, and a session's threads are its own: those of six sessions must sleep
whenever their segment does not run, or they take the cores from each other, and to wake one takes
longer than a short text's segment. Threads of one session may stay awake from segment to segment.

Each segment is a branch of an `If`; the others' is the empty one. After a segment the next runs
unless its exit ends the run: if nobody asks the exit, its head does not run either; if somebody
does, the run ends unless the two largest logits of every row lie closer together than the exit's
gap (`serve.criteria.gaps`): rows that surely stay there go on without the host. Weights stay in
the segments' files, as ONNX's external data.

An `If` that runs nothing costs 2 microseconds and up to 12 with cold caches, and one inside another
5 more when it runs. So segments lie in stretches of one, two, four and so on, each inside an `If`
at the end of the stretch before: a run that ends early passes all that follow in one, and a long
one enters few. (A `Loop` over a tree of `If` nodes takes 3 more per segment that runs, and layouts
of memory, see `serve.runtime.sessions`, save it less.) Runs of which only one exit is asked need
none of it: around all is an `If` whose other branch goes straight (`serve.runtime.straight_run`).
"""

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from serve.bundle.manifest import HIDDEN, HIDDEN_OUT, KEEP
from serve.runtime.branches import SegmentOutputs, either, kind_of, no_rows
from serve.runtime.graph_ports import (
    FIRST,
    FIRST_HIDDEN,
    FIRST_KEEP,
    FIRST_UNASKED,
    GAPS,
    STARTS,
    STRAIGHT,
    UNASKED,
    every,
    hidden_after,
)
from serve.runtime.onnx_wire import BOOL, FLOAT, GRAPH, INPUT, INT64, NAME, OUTPUT
from serve.runtime.onnx_writing import Pieces, constant, framed, node, string, value
from serve.runtime.segment_branch import Place, branch, left_by, runs, said_by, stretch_runs
from serve.runtime.segment_model import SegmentModel, taken_apart
from serve.runtime.straight_run import LAID_OUT, all_odd, begins_odd, no_straight_way, straight_ways

_ENTRY_NAMES = {HIDDEN: FIRST_HIDDEN, KEEP: FIRST_KEEP}


class OneGraph(NamedTuple):
    """A chain's model.

    Attributes:
        model: its bytes.
        begins_odd: whether the first segment reads an odd number of the rows' inputs.
        all_odd: whether all segments together do.
    """

    model: bytes
    begins_odd: bool
    all_odd: bool


def one_graph(models: Mapping[str, memoryview], num_labels: int) -> OneGraph:
    """Return the model of a whole chain.

    Its inputs are those of `serve.runtime.graph_ports` and those of the segments, but for `HIDDEN`
    and `KEEP`; those that no segment reads which runs may be left out: each that is given costs a
    microsecond or more. Its outputs are `hidden_after` each segment, and `every` other output of
    the segments.

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
        carried = left_by(number - 1) if number else None
        segments.append(taken_apart(model, file, carried, _ENTRY_NAMES))
        if list(segments[-1].outputs) != list(segments[0].outputs):
            raise ValueError(f"{file}: not the outputs of the segments before")
        for domain, version in segments[-1].operators.items():
            if operators.setdefault(domain, version) != version:
                named = domain or "ai.onnx"
                raise ValueError(f"{file}: another version of {named} than the segments before")
    functions = dict.fromkeys(function for segment in segments for function in segment.functions)
    graph = framed(GRAPH, _chain(segments, num_labels))
    joined = b"".join([*segments[0].model, *operators.values(), *functions, *graph])
    return OneGraph(joined, begins_odd(segments), all_odd(segments))


def _chain(segments: Sequence[SegmentModel], num_labels: int) -> Pieces:
    """Return the fields of the graph that runs one segment after the other."""
    outputs, between = SegmentOutputs(segments[0]), range(len(segments) - 1)
    kinds = [*outputs.said, *(HIDDEN_OUT for _ in between)]
    given = [*map(every, outputs.said), *map(hidden_after, between)]
    steps = _stretch(segments, 0, outputs, num_labels)
    left = [*(_said_from(0, name) for name in outputs.said), *map(left_by, between)]
    steps += [*map(outputs.like, kinds, repeat(OUTPUT), left), *no_straight_way()]
    inputs = {name: whole for s in segments for name, whole in s.inputs.items()}
    own = [(name, *kind_of(whole)) for name, whole in inputs.items() if name not in _ENTRY_NAMES]
    hidden = FIRST_HIDDEN, *outputs.kinds[HIDDEN_OUT]
    parts: Pieces = [string(NAME, "segments"), *segments[0].tables]
    for name, element, rank in (*own, hidden, (FIRST_KEEP, INT64, 1)):
        parts += [no_rows(name, element, rank), value(INPUT, name, element, rank)]
    for name, element, unless_given in (
        (FIRST, INT64, np.array(0)),
        (STARTS, BOOL, np.array(True)),
        (STRAIGHT, BOOL, np.array(False)),
        (UNASKED, BOOL, np.zeros(len(segments), np.bool_)),
        (FIRST_UNASKED, BOOL, np.zeros(1, np.bool_)),
        (GAPS, FLOAT, np.zeros(len(segments), np.float32)),
    ):
        parts += [constant(name, unless_given), value(INPUT, name, element, unless_given.ndim)]
    parts += either(STRAIGHT, [*given, LAID_OUT], straight_ways(segments, outputs), steps)
    return [*parts, *map(outputs.like, kinds, repeat(OUTPUT), given)]


def _stretch(
    segments: Sequence[SegmentModel], begin: int, outputs: SegmentOutputs, num_labels: int
) -> Pieces:
    """Return the nodes that run segments from one on, unless the run begins after them.

    They give what is `left_by` each but the last of all, and what is `_said_from` them.

    Args:
        segments: all of them.
        begin: number of the one: 0, or one less than a power of 2.
        outputs: of any segment.
        num_labels: as for `one_graph`.
    """
    end = min(2 * begin + 1, len(segments))
    parts: Pieces = []
    if begin:
        parts.append(constant(f"number {begin}", np.array(begin, np.int64)))
        parts += node("LessOrEqual", [FIRST, f"number {begin}"], [runs(begin)])
    for number in range(begin, end):
        after = segments[number + 1] if number + 1 < len(segments) else None
        place = Place(number, after, number + 1 == end)
        parts += branch(segments[number], place, outputs, num_labels)
    if end < len(segments):
        parts += _later_stretches(segments, end, outputs, num_labels)
    for name in outputs.said:
        said = [said_by(number, name) for number in range(begin, end)]
        said += [_said_from(end, name)] if end < len(segments) else []
        parts += node("Concat", said, [_said_from(begin, name)], integers={"axis": 0})
    return parts


def _later_stretches(
    segments: Sequence[SegmentModel], begin: int, outputs: SegmentOutputs, num_labels: int
) -> Pieces:
    """Return the node that runs what follows a stretch, or gives no rows."""
    given = [_said_from(begin, name) for name in outputs.said]
    then = _stretch(segments, begin, outputs, num_labels)
    then += [outputs.like(name, OUTPUT, _said_from(begin, name)) for name in outputs.said]
    idle = outputs.no_rows("further on")
    for number in range(begin, len(segments) - 1):
        given.append(left_by(number))
        then.append(outputs.like(HIDDEN_OUT, OUTPUT, left_by(number)))
        idle += outputs.nothing_like(HIDDEN_OUT, f"not {left_by(number)}")
    return either(stretch_runs(begin), given, then, idle)


def _said_from(begin: int, name: str) -> str:
    """Return the value that holds what heads say from a segment on."""
    return f"{name} from {begin}"
