"""All segments of a variant as one ONNX graph, which runs those that it is asked for.

One graph is one session, and one session has one thread pool. Sessions with a pool each would
take the cores from one another.

The inputs are those of the segments, and `first` and `until`: the first segment to run, and the
segment whose exit ends the run, both counted from 0. Each segment is the branch of an `If`, and its
head is the branch of another `If` inside, which is taken at `until` only. `logits` are therefore
those of one head. Where a segment does not run, its other branch gives what the next segment begins
with, if the run begins there, and nothing otherwise. So the value after a segment is always what
the next segment reads, and hidden states are not copied.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from export.chain.nodes import Nodes, constant
from export.chain.segment_parts import take_apart
from serve.bundle.manifest import ATTENTION_MASK, FIRST, HIDDEN, KEEP, UNTIL, hidden_after

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64
# A run must be given these; the other inputs have a default.
_REQUIRED = (ATTENTION_MASK, UNTIL)


def join_segments(segments: Sequence[ir.Model]) -> ir.Model:
    """Return the joined graph.

    Args:
        segments: first to last; left as they are.
    """
    models = [segment.clone() for segment in segments]
    inputs = _shared_inputs(models)
    inputs |= {name: _value(name, _INT64, []) for name in (FIRST, UNTIL)}
    graph = _Chain(models, inputs).graph()
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


class _Chain:
    """The segments, and the values that lie between them in the outer graph."""

    def __init__(self, models: Sequence[ir.Model], inputs: dict[str, ir.Value]) -> None:
        self._inputs = inputs
        hidden = models[0].graph.outputs[0]
        sizes = [None, None, *_sizes(hidden)[2:]]
        self._left = [
            _value(hidden_after(number), hidden.dtype, sizes) for number in range(len(models) - 1)
        ]
        before = [None, *self._left]
        self._segments = [take_apart(m, i, before[i]) for i, m in enumerate(models)]

    def graph(self) -> ir.Graph:
        nodes = Nodes()
        runs = self._which_run(nodes)
        given: list[list[ir.Value]] = []  # per segment, what its head gives
        for number, segment in enumerate(self._segments):
            given.append([_like(value, "or none") for value in segment.outputs])
            outputs = [*self._left[number : number + 1], *given[-1]]
            nodes.either(runs[number], self._running(number), self._idle(number), outputs)
        outputs = []
        for parts, like in zip(zip(*given, strict=True), self._segments[-1].outputs, strict=True):
            output = _value(_own_name(like), like.dtype, _sizes(like))
            outputs.append(nodes.op("Concat", parts, output, axis=0))
        graph = nodes.graph("joined", [*outputs, *self._left])
        self._add_inputs(graph)
        return graph

    def _which_run(self, nodes: Nodes) -> list[ir.Value]:
        """Return, per segment, whether it runs."""
        numbers = constant("numbers", np.arange(len(self._segments)))
        first, until = self._inputs[FIRST], self._inputs[UNTIL]
        begun = nodes.op("LessOrEqual", [first, numbers], _value("begun", _BOOL))
        not_over = nodes.op("LessOrEqual", [numbers, until], _value("not over", _BOOL))
        both = nodes.op("And", [begun, not_over], _value("which run", _BOOL))
        runs = [_value(f"{number}/runs", _BOOL) for number in range(len(self._segments))]
        nodes.split(both, runs)
        return runs

    def _running(self, number: int) -> ir.Graph:
        """Return the graph of a segment's layers, and of its head if the run ends there."""
        segment = self._segments[number]
        nodes = Nodes(segment.layers)
        own = constant("own number", np.array(number))
        ends = nodes.op("Equal", [self._inputs[UNTIL], own], _value(f"{number}/ends", _BOOL))
        head = Nodes(segment.head).graph(f"{number}/head", segment.outputs)
        unasked = _without_rows(segment.outputs, f"{number}/unasked")
        outputs = [_like(value, "or unasked") for value in segment.outputs]
        nodes.either(ends, head, unasked, outputs)
        hidden = [segment.hidden] if number < len(self._left) else []
        return nodes.graph(f"{number}/segment", [*hidden, *outputs])

    def _idle(self, number: int) -> ir.Graph:
        """Return the graph that takes a segment's place where the segment does not run."""
        name, nodes = f"{number}/idle", Nodes()
        outputs = self._segments[number].outputs
        idle = [nodes.no_rows(value, f"{name}/{value.name}") for value in outputs]
        if number == len(self._left):
            return nodes.graph(name, idle)
        left, following = self._left[number], constant("next number", np.array(number + 1))
        begins = nodes.op("Equal", [self._inputs[FIRST], following], _value(f"{name}/next", _BOOL))
        nothing = _without_rows([left], f"{name}/nothing")
        entered = _like(left, "entered or none")
        nodes.either(begins, self._entry(number), nothing, [entered])
        return nodes.graph(name, [entered, *idle])

    def _entry(self, number: int) -> ir.Graph:
        """Return the graph that chooses the rows that go on after a segment, and cuts padding.

        It does what later segments begin with when they are by themselves.
        """
        name, nodes, kind = f"{number}/entry", Nodes(), self._left[0].dtype
        read = [self._inputs[HIDDEN], self._inputs[KEEP]]
        rows = nodes.op("Gather", read, _value(f"{name}/rows", kind), axis=0)
        mask = self._inputs[ATTENTION_MASK]
        width = nodes.op("Shape", [mask], _value(f"{name}/width", _INT64), start=1, end=2)
        start, axis = constant("start", np.array([0])), constant("axis", np.array([1]))
        cut = nodes.op("Slice", [rows, start, width, axis], _value(f"{name}/cut", kind))
        return nodes.graph(name, [cut])

    def _add_inputs(self, graph: ir.Graph) -> None:
        for name, value in self._inputs.items():
            graph.inputs.append(value)
            if name not in _REQUIRED:
                value.const_value = _default(value)
                graph.register_initializer(value)


def _without_rows(values: Sequence[ir.Value], name: str) -> ir.Graph:
    nodes = Nodes()
    return nodes.graph(name, [nodes.no_rows(value, f"{name}/{value.name}") for value in values])


def _value(
    name: str, dtype: ir.DataType | None, sizes: Sequence[int | str | None] | None = None
) -> ir.Value:
    assert dtype is not None
    shape = None if sizes is None else ir.Shape(sizes)
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=shape)


def _like(value: ir.Value, ending: str) -> ir.Value:
    """Return a value of the same type.

    Its sizes stay open: a value of no rows may be in its place, and ONNX Runtime lets values of
    equal sizes share memory.
    """
    return _value(f"{value.name} {ending}", value.dtype)


def _sizes(value: ir.Value) -> list[int | str | None]:
    assert value.shape is not None
    return [size if isinstance(size, int) else size.value for size in value.shape]


def _own_name(value: ir.Value) -> str:
    """Return the name that a value had in its segment."""
    assert value.name is not None
    return value.name.partition("/")[2]


def _default(value: ir.Value) -> ir.TensorProtocol:
    """Return 0 for a number, and no rows for an array."""
    assert value.dtype is not None
    sizes = [size if isinstance(size, int) else 0 for size in _sizes(value)]
    return ir.tensor(np.zeros(sizes, value.dtype.numpy()), name=value.name)
