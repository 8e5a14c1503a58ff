"""Write the model as one graph, which is what a server without early exit runs.

The bundle's segments are joined without their inner heads and without the choice of rows between
them, so precision and kernels are the same.

`python -m loadtest.bench.one_graph BUNDLE --out FOLDER` writes one graph per variant, for a GPU
host that has no `onnx`.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import (
    ATTENTION_LENGTHS,
    ATTENTION_MASK,
    HIDDEN,
    HIDDEN_OUT,
    INPUT_IDS,
    KEEP,
    LENGTHS,
    LOGITS,
    SHARES,
    TOKEN_TYPE_IDS,
    Precision,
)

FILE_NAME = "one_graph.onnx"
_SHARED = {INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS, LENGTHS, ATTENTION_LENGTHS, SHARES}


def write_one_graph(bundle: Bundle, precision: Precision, folder: Path) -> Path:
    """Write the graph with its weights in a file beside it, and return the graph's path."""
    path = folder / FILE_NAME
    parts = [*bundle.segment_paths(precision), *bundle.head_paths(precision)[-1:]]
    joined = join([onnx.load(part) for part in parts])
    onnx.save_model(joined, path, save_as_external_data=True, location="weights")
    return path


def join(segments: list[ModelProto]) -> ModelProto:
    """Return embeddings, all layers and the last head as one graph; its output is the logits.

    Args:
        segments: first to last; of a variant for GPUs the bodies, then the last head.
    """
    joined = ModelProto()
    joined.CopyFrom(segments[-1])
    joined.graph.CopyFrom(GraphProto(name="one_graph", input=segments[0].graph.input))
    hidden = logits = ""
    for index, segment in enumerate(segments):
        names = _append(joined.graph, segment.graph, f"{index}.", hidden)
        hidden, logits = names.get(HIDDEN_OUT, ""), names.get(LOGITS, "")
    (output,) = (value for value in segments[-1].graph.output if value.name == LOGITS)
    joined.graph.output.add().CopyFrom(output)
    joined.graph.output[0].name = logits
    _drop_unused(joined.graph)
    _merge_equal(joined.graph)
    _declare_inputs(joined.graph, segments)
    return joined


def _declare_inputs(graph: GraphProto, segments: Iterable[ModelProto]) -> None:
    """Declare what later parts read and the first does not."""
    declared = {value.name for value in graph.input}
    read = {name for node in graph.node for name in node.input}
    for value in [value for segment in segments for value in segment.graph.input]:
        if value.name in (read & _SHARED) - declared:
            graph.input.add().CopyFrom(value)
            declared.add(value.name)


def _append(joined: GraphProto, segment: GraphProto, prefix: str, hidden: str) -> dict[str, str]:
    """Append a segment's nodes and weights under new names; return the names.

    Args:
        joined: the graph that grows.
        segment: the next segment.
        prefix: of all new names.
        hidden: name of the hidden states that the segment reads, all rows of them.
    """
    compacted = _compacted(segment)
    produced = {output for node in segment.node for output in node.output}
    weights = {tensor.name for tensor in segment.initializer}
    names = {"": "", compacted: hidden} | {name: name for name in _SHARED}
    names |= {name: prefix + name for name in (produced | weights) - names.keys()}
    for tensor in segment.initializer:
        joined.initializer.add().CopyFrom(tensor)
        joined.initializer[-1].name = names[tensor.name]
    for node in segment.node:
        if compacted != HIDDEN and (HIDDEN in node.input or compacted in node.output):
            continue
        copy = joined.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [names[name] for name in node.input]
        copy.output[:] = [names[name] for name in node.output]
        copy.name = prefix + node.name
    return names


def _compacted(segment: GraphProto) -> str:
    """Return the name of the hidden states after rows are chosen and padding is cut, or ''.

    Graphs for GPUs begin there.
    """
    inputs = {value.name for value in segment.input}
    if HIDDEN in inputs and KEEP not in inputs:
        return HIDDEN
    gathers = (node for node in segment.node if list(node.input) == [HIDDEN, KEEP])
    gathered = next((node.output[0] for node in gathers), None)
    cuts = (node for node in segment.node if gathered in node.input)
    return next((node.output[0] for node in cuts), "")


def _drop_unused(graph: GraphProto) -> None:
    """Remove the inner heads and everything else that does not lead to the output."""
    needed = {output.name for output in graph.output}
    kept: list[NodeProto] = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    _replace(graph, reversed(kept))
    tensors = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(tensors)


def _merge_equal(graph: GraphProto) -> None:
    """Compute once what every segment computes of the attention mask."""
    first: dict[bytes, NodeProto] = {}
    names: dict[str, str] = {}
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        anonymous = NodeProto()
        anonymous.CopyFrom(node)
        anonymous.ClearField("name")
        anonymous.ClearField("output")
        same = first.setdefault(anonymous.SerializeToString(deterministic=True), node)
        if same is not node:
            names |= zip(node.output, same.output, strict=True)
    _replace(graph, [node for node in graph.node if node.output[0] not in names])


def _replace(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    kept = list(nodes)
    del graph.node[:]
    graph.node.extend(kept)


def main() -> None:
    """Write the one graph of every variant to a folder of its own."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.one_graph")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    bundle = load_bundle(options.bundle)
    for precision in bundle.manifest.variants:
        folder = options.out / precision
        folder.mkdir(parents=True, exist_ok=True)
        print(write_one_graph(bundle, precision, folder))


if __name__ == "__main__":
    main()
