"""Write the model as one graph, which is what a server without early exit runs.

The bundle's graphs are joined without their inner heads and without the choice of rows between
them, so precision and kernels are the same.
"""

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx import GraphProto, ModelProto, NodeProto
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, RemoveUnusedNodesPass

from serve.bundle.loader import Bundle
from serve.bundle.manifest import HIDDEN, HIDDEN_OUT, KEEP, LOGITS, Precision

FILE_NAME = "one_graph.onnx"


def write_one_graph(bundle: Bundle, precision: Precision, folder: Path) -> Path:
    """Write the graph with its weights in a file beside it, and return the graph's path."""
    parts = [*bundle.segment_paths(precision), *bundle.head_paths(precision)[-1:]]
    joined = join([onnx.load(part) for part in parts])
    path = folder / FILE_NAME
    weights = f"{path.stem}.weights"
    onnx.save_model(joined, path, save_as_external_data=True, location=weights)
    return path


def join(parts: Sequence[ModelProto]) -> ModelProto:
    """Return graphs as one: each reads the hidden states of the one before.

    A variant for GPUs has a head of its own, which comes last.
    """
    joined = ModelProto()
    joined.CopyFrom(parts[-1])
    joined.graph.CopyFrom(GraphProto(name="one_graph"))
    declared = [value for part in parts for value in part.graph.input]
    inputs = {value.name: value for value in declared}
    for name in (HIDDEN, KEEP):
        inputs.pop(name, None)
    joined.graph.input.extend(inputs.values())
    names = {name: name for name in (HIDDEN, *inputs)}
    for index, part in enumerate(parts):
        names |= _append(joined.graph, part.graph, f"{index}.", names)
        names[HIDDEN] = names[HIDDEN_OUT]
    values = {value.name: value for value in parts[-1].graph.output}
    joined.graph.output.append(values[LOGITS])
    for node in joined.graph.node:
        _translate(node, {names[LOGITS]: LOGITS})
    model = ir.from_proto(joined)
    # Inner heads lead nowhere, and every segment computes the same of the attention mask.
    RemoveUnusedNodesPass()(model)
    CommonSubexpressionEliminationPass()(model)
    used = [value for value in model.graph.inputs if value.uses()]
    model.graph.inputs.clear()
    model.graph.inputs.extend(used)
    return ir.to_proto(model)


def _append(
    joined: GraphProto, segment: GraphProto, prefix: str, known: dict[str, str]
) -> dict[str, str]:
    """Append a segment's nodes and weights under new names; return the names.

    Args:
        joined: the graph that grows.
        segment: the next segment.
        prefix: of all new names.
        known: names of the graph's inputs, and of the hidden states that the segment reads, all
            rows of them.
    """
    compacted = _compacted(segment)
    produced = {output for node in segment.node for output in node.output}
    weights = {tensor.name for tensor in segment.initializer}
    names = known | {name: prefix + name for name in produced | weights}
    names |= {"": "", compacted: known[HIDDEN]} if compacted else {"": ""}
    for tensor in segment.initializer:
        joined.initializer.add().CopyFrom(tensor)
        joined.initializer[-1].name = names[tensor.name]
    for node in segment.node:
        if compacted and (HIDDEN in node.input or compacted in node.output):
            continue
        copy = joined.node.add()
        copy.CopyFrom(node)
        _translate(copy, names)
        copy.name = prefix + node.name
    return names


def _compacted(segment: GraphProto) -> str:
    """Return the name of the hidden states after rows are chosen and padding is cut, or ''."""
    gathers = (node for node in segment.node if list(node.input) == [HIDDEN, KEEP])
    gathered = next((node.output[0] for node in gathers), None)
    cuts = (node for node in segment.node if gathered in node.input)
    return next((node.output[0] for node in cuts), "")


def _translate(node: NodeProto, names: dict[str, str]) -> None:
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]
