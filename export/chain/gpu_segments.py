"""A segment for GPUs: layers and exit head as two graphs, without an attention mask.

A run queues the layers of several segments and only the head of the exit where it ends. Rows are
chosen and padding is cut between two segments, by the server's own graph
(`export.chain.take_graph`), where rows have left.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from export.chain.segment_parts import chosen
from export.errors import ExportFailed
from export.graph.splice import Splice
from export.kernels.gpu import suit_gpu
from export.precision.half import halve, halve_head
from serve.bundle.manifest import (
    ATTENTION_LENGTHS,
    ATTENTION_MASK,
    HIDDEN,
    HIDDEN_OUT,
    INPUT_IDS,
    LENGTHS,
    SHARES,
    TOKEN_TYPE_IDS,
)

_GIVEN = (LENGTHS, ATTENTION_LENGTHS, SHARES)
_FIRST_INPUTS = (INPUT_IDS, TOKEN_TYPE_IDS, *_GIVEN)
_LATER_INPUTS = (HIDDEN, *_GIVEN)
_LAST = np.array([2], np.int64)  # axis of the shares


class GpuSegment(NamedTuple):
    """The two graphs of a segment.

    Attributes:
        body: from token ids or hidden states to `hidden_out`, (rows, tokens, width).
        head: from the same hidden states to logits and, if learned, uncertainty.
    """

    body: ir.Model
    head: ir.Model


def gpu_segment(segment: ir.Model, half: bool = True) -> GpuSegment:
    """Return the graphs of a segment.

    Args:
        segment: from `export.chain.segments.build_segment`; left as it is.
        half: whether hidden states are fp16; logits are fp32 in any case.

    Raises:
        ExportFailed: the head reads more than the layers' hidden states.
    """
    model = segment.clone()
    suit_gpu(model)
    body, head = model.clone(), model
    _cut_head(body)
    _cut_layers(head)
    return GpuSegment(halve(body), halve_head(head)) if half else GpuSegment(body, head)


def names(values: Sequence[ir.Value]) -> tuple[str, ...]:
    """Return the names of a graph's inputs or outputs."""
    return tuple(str(value.name) for value in values)


def _cut_head(model: ir.Model) -> None:
    """Leave the layers. In place."""
    graph = model.graph
    del graph.outputs[1:]
    entered = _named(graph, INPUT_IDS)
    if entered is None:
        cut = chosen(graph)
        entered = _hidden(cut)
        ir.convenience.replace_all_uses_with(cut, entered)
    _drop_mask(model, entered)
    _declare(model, entered, _LATER_INPUTS if entered.name == HIDDEN else _FIRST_INPUTS)


def _cut_layers(model: ir.Model) -> None:
    """Leave the exit head. In place."""
    graph = model.graph
    left = graph.outputs.pop(0)
    assert left.name == HIDDEN_OUT
    last = left.producer()
    if last is not None and last.op_type == "Identity":  # no layers: DeeBERT's last ramp
        (left,) = (value for value in last.inputs if value is not None)
    entered = _hidden(left)
    ir.convenience.replace_all_uses_with(left, entered)
    RemoveUnusedNodesPass()(model)
    _drop_mask(model, entered)
    _declare(model, entered, _LATER_INPUTS)


def _drop_mask(model: ir.Model, entered: ir.Value) -> None:
    """Read rows and tokens from what enters, and which tokens are real from their shares."""
    graph = model.graph
    RemoveUnusedNodesPass()(model)
    mask = _named(graph, ATTENTION_MASK)
    assert mask is not None
    for node, index in list(mask.uses()):
        if node.op_type == "Shape":
            node.replace_input_with(index, entered)
    if not mask.uses():
        return
    shares = _named(graph, SHARES)
    assert shares is not None
    splice = Splice(model, graph[0])
    is_real = splice.op("Cast", shares, attributes={"to": ir.DataType.BOOL.value})
    is_real.type = ir.TensorType(ir.DataType.BOOL)
    numbers = splice.op("Cast", is_real, attributes={"to": ir.DataType.INT64.value})
    flat = splice.op("Squeeze", numbers, splice.constant("last", _LAST))
    flat.type, flat.shape = mask.type, mask.shape
    splice.insert()
    ir.convenience.replace_all_uses_with(mask, flat)


def _declare(model: ir.Model, entered: ir.Value, allowed: Sequence[str]) -> None:
    """Declare the inputs that are read, in the order of `allowed`."""
    RemoveUnusedNodesPass()(model)
    graph = model.graph
    named = {value.name: value for value in graph.inputs} | {entered.name: entered}
    surplus = [name for name, value in named.items() if value.uses() and name not in allowed]
    if surplus:
        place = "layers" if graph.outputs[0].name == HIDDEN_OUT else "head"
        listed = ", ".join(map(str, surplus))
        raise ExportFailed(f"the {place} of a segment for GPUs would read {listed}")
    graph.inputs[:] = [named[name] for name in allowed if name in named and named[name].uses()]


def _hidden(like: ir.Value) -> ir.Value:
    return ir.Value(name=HIDDEN, shape=like.shape, type=like.type)


def _named(graph: ir.Graph, name: str) -> ir.Value | None:
    return next((value for value in graph.inputs if value.name == name), None)
