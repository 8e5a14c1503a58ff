"""The graph that runs segments straight to the first exit that is asked.

Nobody asks the exits before, and the run ends there. So the segments need no branch each: a run
that passes from one to the next spends 20 to 35 microseconds between them. All segments lie in one
graph, as in a model that has one exit. In a deep model there are ways to the exits before, too, in
halves: eight segments, four, two and one, each if the way is so long, the later ones in graphs
inside the earlier ones'. A run to exit 11 enters three instead of eleven. (A model of few segments
gains less by that than it loses: every way keeps data of its own, which are cold then.)

The weights are not there twice: what kernels make of a weight ONNX Runtime keeps once in a session
(https://github.com/microsoft/onnxruntime/pull/23069), and it reads what they do not change from
the segments' files. (But in fp16, of which a CPU makes fp32 first, ways to every exit hold one more
copy of that.)
"""

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from serve.bundle.manifest import HIDDEN, HIDDEN_OUT, KEEP
from serve.runtime.branches import SegmentOutputs, either, no_rows
from serve.runtime.graph_ports import FIRST_UNASKED, UNASKED
from serve.runtime.onnx_renaming import made_in, renamed
from serve.runtime.onnx_wire import INT64, OUTPUT, VALUE_INFO, fields
from serve.runtime.onnx_writing import Pieces, constant, node, value
from serve.runtime.segment_branch import left_by
from serve.runtime.segment_model import SegmentModel, reads_odd

# A model of more segments has ways to every exit, others to the last.
DEEP = 8
# An output of graphs, for which they read what tells layouts of memory apart. Nobody reads it.
LAID_OUT = "laid out for"


class _Graph(NamedTuple):
    """Nodes, and the values that they give: what heads say, hidden states, `LAID_OUT`."""

    nodes: Pieces
    given: list[str]


def may_go_straight(exit_: int, num_segments: int) -> bool:
    """Tell whether `straight_ways` leads to an exit, counted from 0."""
    return exit_ == num_segments - 1 or num_segments > DEEP


def straight_ways(segments: Sequence[SegmentModel], outputs: SegmentOutputs) -> Pieces:
    """Return the graph.

    It gives what the exit's head says; hidden states as if after each segment but the last, of
    which the first are those after the exit, unless that is the last, and the others have no rows;
    and `LAID_OUT`.

    Args:
        segments: all of them.
        outputs: of any segment.
    """
    nodes, (*said, hidden, laid_out) = _Ways(segments, outputs).all()
    parts = [*nodes, *map(outputs.like, outputs.said, repeat(OUTPUT), said)]
    if len(segments) > 1:
        parts.append(outputs.like(HIDDEN_OUT, OUTPUT, hidden))
    for number in range(1, len(segments) - 1):
        parts += outputs.nothing_like(HIDDEN_OUT, f"nothing left by {number}")
    return [*parts, value(OUTPUT, laid_out, INT64, 0)]


def no_straight_way() -> Pieces:
    """Return `LAID_OUT` as a graph gives it that is not laid out by this."""
    return [
        constant("laid out for none", np.array(0)),
        value(OUTPUT, "laid out for none", INT64, 0),
    ]


def begins_odd(segments: Sequence[SegmentModel]) -> bool:
    """Tell whether the first segment reads an odd number of the inputs that rows have."""
    first = segments[0]
    return reads_odd(memoryview(b"".join([*first.layers, *first.head])), first.inputs)


def all_odd(segments: Sequence[SegmentModel]) -> bool:
    """Tell whether all segments together read an odd number of the inputs that rows have."""
    inputs = {name for segment in segments for name in segment.inputs} - {HIDDEN, KEEP}
    parts = [piece for s in segments for piece in s.layers] + [*segments[-1].head]
    return reads_odd(memoryview(b"".join(parts)), inputs)


class _Ways:
    """Graphs of all ways there are.

    A way is as long as the segments that it runs. Of a model of ten there are graphs of 1, 2, 4, 8
    and all segments. That of four goes on with the head, if the way is 4 long; with one segment, if
    5; else with two, and after them the head, if 6, or one more.

    Names of values tell where on the way they are made: graphs inside others may not have theirs.
    """

    def __init__(self, segments: Sequence[SegmentModel], outputs: SegmentOutputs) -> None:
        self._segments, self._outputs = segments, outputs

    def all(self) -> _Graph:
        """Return the graph that goes as far as it is told."""
        depth = len(self._segments)
        graph = self._through(0, depth)
        if depth > DEEP:
            graph = self._if_longer(depth - 1, "to any exit", graph, self._to(2))
            # Asked first, for what leaves there has the shortest way.
            graph = self._if_longer(1, "to the first", graph, self._through(0, 1))
        return graph

    def _to(self, reach: int) -> _Graph:
        """Return what goes through so many segments or more, a power of 2, but not all."""
        graph, further = self._through(0, reach), 2 * reach
        if further >= len(self._segments):
            return graph
        return self._if_longer(further - 1, f"to {further}", self._to(further), graph)

    def _from(self, begin: int, half: int, entered: str) -> _Graph:
        """Return what goes on from a segment, through it and less than two halves, but not to all.

        Args:
            begin: the segment, neither the first nor the last.
            half: a power of 2.
            entered: the hidden states it begins with.
        """
        if half == 1:
            return self._through(begin, 1, entered)
        end, near = begin + half, self._from(begin, half // 2, entered)
        if end >= len(self._segments):
            return near
        far = self._through(begin, half, entered)
        return self._if_longer(end - 1, f"from {begin} by {half}", far, near)

    def _through(self, begin: int, number: int, entered: str = "") -> _Graph:
        """Return what goes through so many segments, and on through less than that.

        Args:
            begin: the first of them.
            number: 1 to all there are.
            entered: the hidden states it begins with, unless it is the model's first.
        """
        end = begin + number
        nodes: Pieces = []
        names: dict[str, str] = {HIDDEN_OUT: entered}
        for at in range(begin, end):
            layers, head = _unsized(self._segments[at].layers), _unsized(self._segments[at].head)
            entering = {left_by(at - 1): names[HIDDEN_OUT]}
            # An output that no node gives keeps its name: ONNX Runtime refuses it by that.
            names = {name: name for name in self._outputs.kinds}
            names |= {name: f"{name} in {at}" for name in made_in(layers) | made_in(head)}
            names |= entering
            nodes += renamed(layers, names)
        laid_out = f"laid out from {begin}"
        nodes += node("Size", [UNASKED if begin else FIRST_UNASKED], [laid_out])
        goes_on = number > 1 and end < len(self._segments) - 1
        exit_ = self._exit(end, names, laid_out, inside=goes_on)
        if not goes_on:
            return _Graph([*nodes, *exit_.nodes], exit_.given)
        on = self._from(end, number // 2, names[HIDDEN_OUT])
        nodes_on, given = self._if_longer(end, f"on from {end}", on, exit_)
        return _Graph([*nodes, *nodes_on], given)

    def _exit(self, length: int, names: dict[str, str], laid_out: str, inside: bool) -> _Graph:
        """Return the head after so many segments.

        Args:
            length: the number.
            names: of the last one's values.
            laid_out: tells layouts of memory apart.
            inside: whether in a graph of its own. It must make what it gives: the hidden states are
                copied there.
        """
        segment = self._segments[length - 1]
        nodes = renamed(_unsized(segment.head), names)
        given = [names[name] for name in self._outputs.said]
        if length < len(self._segments):
            given.append(names[HIDDEN_OUT])
        else:
            nodes.append(no_rows("no hidden", *self._outputs.kinds[HIDDEN_OUT]))
            given.append("no hidden")
        given.append(laid_out)
        if inside:
            for i, name in enumerate([*self._outputs.said, HIDDEN_OUT, LAID_OUT]):
                if name not in segment.said_by_head:
                    nodes += node("Identity", [given[i]], [f"{given[i]} given"])
                    given[i] += " given"
        return _Graph(nodes, given)

    def _if_longer(self, length: int, where: str, far: _Graph, near: _Graph) -> _Graph:
        """Return a choice.

        Args:
            length: a number of segments.
            where: names the choice.
            far: if the way is longer.
            near: if not.
        """
        given = [f"{name} {where}" for name in [*self._outputs.said, HIDDEN_OUT, LAID_OUT]]
        longer, exit_ = f"longer {where}", f"exit {where}"
        nodes: Pieces = [constant(exit_, np.array(length - 1, np.int64))]
        nodes += node("Gather", [UNASKED, exit_], [longer])
        nodes += either(longer, given, self._as_branch(far), self._as_branch(near))
        return _Graph(nodes, given)

    def _as_branch(self, graph: _Graph) -> Pieces:
        names = [*self._outputs.said, HIDDEN_OUT]
        kinds = [
            self._outputs.like(name, OUTPUT, given)
            for name, given in zip(names, graph.given[:-1], strict=True)
        ]
        return [*graph.nodes, *kinds, value(OUTPUT, graph.given[-1], INT64, 0)]


def _unsized(part: Pieces) -> memoryview:
    """Return part of a segment without what is known of its values.

    That tells sizes by names, which mean other sizes in other segments.
    """
    known = fields(memoryview(b"".join(part)))
    return memoryview(b"".join(whole for number, whole, *_ in known if number != VALUE_INFO))
