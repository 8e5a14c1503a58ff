"""All segments of a variant as one ONNX graph, which runs those that it is asked for.

One graph is one session, and one session has one thread pool. Sessions with a pool each would
take the cores from one another.

The inputs are those of the segments, and `first` and `until`: the first segment to run, and the
segment whose exit ends the run, both counted from 0. Each segment is the branch of an `If`, and its
head is the branch of another `If` inside, which is taken at `until` only. `logits` are therefore
those of one head. Where a segment does not run, its other branch gives what the next segment begins
with, if the run begins there, and nothing otherwise. So the value after a segment is always what
the next segment reads, and hidden states are not copied.

A run from the first segment to the last takes a branch around all this (`straight`).
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from export.chain.nodes import Nodes, constant, open_value, sizes_of
from export.chain.segment_parts import SegmentParts, take_apart
from export.chain.straight import share_tables, straight_graph
from serve.bundle.manifest import ATTENTION_MASK, FIRST, HIDDEN, KEEP, UNTIL, hidden_after

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64
# A run must be given these; the other inputs have a default.
_REQUIRED = (ATTENTION_MASK, UNTIL)


def join_segments(segments: Sequence[ir.Model]) -> ir.Model:
    """Return the joined graph.

    Args:
        segments: first to last; left as they are.
    """
    models, again = ([segment.clone() for segment in segments] for _ in range(2))
    inputs = _shared_inputs([*models, *again])
    inputs |= {name: open_value(name, _INT64, []) for name in (FIRST, UNTIL)}
    tables = share_tables(models[0].graph, again[0].graph)
    chain = _Chain(models, inputs)
    nodes = Nodes()
    ends = [constant("begin", np.array(0)), constant("end", np.array(len(models) - 1))]
    asked = [inputs[FIRST], inputs[UNTIL]]
    same = [open_value(name, _BOOL) for name in ("at begin", "at end")]
    for pair, output in zip(zip(asked, ends, strict=True), same, strict=True):
        nodes.op("Equal", pair, output)
    whole = nodes.op("And", same, open_value("whole", _BOOL))
    nodes.either(whole, straight_graph(again, chain.left), chain.graph(), chain.outputs)
    graph = nodes.graph("joined", chain.outputs)
    for table, tensor in tables.items():
        table.const_value = tensor
        graph.register_initializer(table)
    _add_inputs(graph, inputs)
    for model in models:
        graph.opset_imports.update(model.opset_imports)
    return ir.Model(graph, ir_version=models[0].ir_version)


def _shared_inputs(models: Sequence[ir.Model]) -> dict[str, ir.Value]:
    """Let all segments read the same inputs, and return these by name."""
    shared: dict[str, ir.Value] = {}
    for model in models:
        for value in model.graph.inputs:
            assert value.name is not None
            known = shared.setdefault(value.name, value)
            if known is not value:
                ir.convenience.replace_all_uses_with(value, known)
        model.graph.inputs.clear()
    return shared


def _add_inputs(graph: ir.Graph, inputs: dict[str, ir.Value]) -> None:
    """Declare the inputs. The default of a number is 0, that of an array has no rows."""
    for name, value in inputs.items():
        graph.inputs.append(value)
        if name not in _REQUIRED:
            assert value.dtype is not None
            sizes = [size if isinstance(size, int) else 0 for size in sizes_of(value)]
            value.const_value = ir.tensor(np.zeros(sizes, value.dtype.numpy()), name=name)
            graph.register_initializer(value)


class _Chain:
    """The graph that runs segment after segment.

    Attributes:
        left: the hidden states after each segment but the last.
        outputs: of the joined graph.
    """

    def __init__(self, models: Sequence[ir.Model], inputs: dict[str, ir.Value]) -> None:
        self._inputs = inputs
        hidden, *head = models[-1].graph.outputs
        sizes = [None, None, *sizes_of(hidden)[2:]]
        numbers = range(len(models) - 1)
        self.left = [open_value(f"{number}/left", hidden.dtype, sizes) for number in numbers]
        named = [open_value(str(value.name), value.dtype, sizes_of(value)) for value in head]
        after = [open_value(hidden_after(number), hidden.dtype, sizes) for number in numbers]
        self.outputs = [*named, *after]
        before = [None, *self.left]
        self._segments: list[SegmentParts] = [
            take_apart(model, str(number), before[number]) for number, model in enumerate(models)
        ]

    def graph(self) -> ir.Graph:
        nodes = Nodes()
        runs = self._which_run(nodes)
        given: list[list[ir.Value]] = []  # per segment, what its head gives
        for number, segment in enumerate(self._segments):
            given.append([_like(value, "or none") for value in segment.outputs])
            outputs = [*self.left[number : number + 1], *given[-1]]
            nodes.either(runs[number], self._running(number), self._idle(number), outputs)
        outputs = []
        for parts in zip(*given, strict=True):
            output = _like(parts[-1], "of all")
            outputs.append(nodes.op("Concat", parts, output, axis=0))
        return nodes.graph("steps", [*outputs, *self.left])

    def _which_run(self, nodes: Nodes) -> list[ir.Value]:
        """Return, per segment, whether it runs."""
        numbers = constant("numbers", np.arange(len(self._segments)))
        first, until = self._inputs[FIRST], self._inputs[UNTIL]
        begun = nodes.op("LessOrEqual", [first, numbers], open_value("begun", _BOOL))
        not_over = nodes.op("LessOrEqual", [numbers, until], open_value("not over", _BOOL))
        both = nodes.op("And", [begun, not_over], open_value("which run", _BOOL))
        runs = [open_value(f"{number}/runs", _BOOL) for number in range(len(self._segments))]
        nodes.split(both, runs)
        return runs

    def _running(self, number: int) -> ir.Graph:
        """Return the graph of a segment's layers, and of its head if the run ends there."""
        segment = self._segments[number]
        nodes = Nodes(segment.layers)
        own = constant("own number", np.array(number))
        ends = nodes.op("Equal", [self._inputs[UNTIL], own], open_value(f"{number}/ends", _BOOL))
        head = Nodes(segment.head).graph(f"{number}/head", segment.outputs)
        unasked = _without_rows(segment.outputs, f"{number}/unasked")
        outputs = [_like(value, "or unasked") for value in segment.outputs]
        nodes.either(ends, head, unasked, outputs)
        hidden = [segment.hidden] if number < len(self.left) else []
        return nodes.graph(f"{number}/segment", [*hidden, *outputs])

    def _idle(self, number: int) -> ir.Graph:
        """Return the graph that takes a segment's place where the segment does not run."""
        name, nodes = f"{number}/idle", Nodes()
        outputs = self._segments[number].outputs
        idle = [nodes.no_rows(value, f"{name}/{value.name}") for value in outputs]
        if number == len(self.left):
            return nodes.graph(name, idle)
        left, following = self.left[number], constant("next number", np.array(number + 1))
        begins = open_value(f"{name}/next", _BOOL)
        nodes.op("Equal", [self._inputs[FIRST], following], begins)
        nothing = _without_rows([left], f"{name}/nothing")
        entered = _like(left, "entered or none")
        nodes.either(begins, self._entry(number), nothing, [entered])
        return nodes.graph(name, [entered, *idle])

    def _entry(self, number: int) -> ir.Graph:
        """Return the graph that chooses the rows that go on after a segment, and cuts padding.

        It does what later segments begin with when they are by themselves.
        """
        name, nodes, kind = f"{number}/entry", Nodes(), self.left[0].dtype
        read = [self._inputs[HIDDEN], self._inputs[KEEP]]
        rows = nodes.op("Gather", read, open_value(f"{name}/rows", kind), axis=0)
        mask = self._inputs[ATTENTION_MASK]
        width = nodes.op("Shape", [mask], open_value(f"{name}/width", _INT64), start=1, end=2)
        start, axis = constant("start", np.array([0])), constant("axis", np.array([1]))
        cut = nodes.op("Slice", [rows, start, width, axis], open_value(f"{name}/cut", kind))
        return nodes.graph(name, [cut])


def _without_rows(values: Sequence[ir.Value], name: str) -> ir.Graph:
    nodes = Nodes()
    return nodes.graph(name, [nodes.no_rows(value, f"{name}/{value.name}") for value in values])


def _like(value: ir.Value, ending: str) -> ir.Value:
    """Return a value of the same type.

    Its sizes stay open: a value of no rows may be in its place, and ONNX Runtime lets values of
    equal sizes share memory.
    """
    return open_value(f"{value.name} {ending}", value.dtype)
