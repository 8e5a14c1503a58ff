"""The same model as one graph: what a server without early exit would run.

Made from a bundle's segments, so that it is compared at the same precision and with the same
kernels: joined end to end, without choosing rows between them and without the inner heads.

`python -m loadtest.bench.one_graph BUNDLE --out FOLDER` writes one per variant, for a GPU host.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import (
    ATTENTION_MASK,
    HIDDEN,
    HIDDEN_OUT,
    INPUT_IDS,
    KEEP,
    LOGITS,
    TOKEN_TYPE_IDS,
    Precision,
)

_SHARED = {INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS}


def write_one_graph(
    bundle: Bundle, precision: Precision, folder: Path, every_head: bool = False
) -> Path:
    """Write the model as one graph, weights beside it, and return its path."""
    path = folder / "one_graph.onnx"
    segments = [onnx.load(segment) for segment in bundle.segment_paths(precision)]
    joined = join(segments, every_head)
    onnx.save_model(joined, path, save_as_external_data=True, location="weights")
    return path


def join(segments: list[ModelProto], every_head: bool = False) -> ModelProto:
    """Return embeddings, all layers and the last head as one graph; its output is the logits.

    Args:
        segments: first to last.
        every_head: keep the inner heads too; the last one's logits are the first output.
    """
    joined = ModelProto()
    joined.CopyFrom(segments[-1])
    joined.graph.CopyFrom(GraphProto(name="one_graph", input=segments[0].graph.input))
    hidden = ""
    logits: list[str] = []
    for index, segment in enumerate(segments):
        names = _append(joined.graph, segment.graph, f"{index}.", hidden)
        hidden = names[HIDDEN_OUT]
        logits.insert(0, names[LOGITS])
    for name in logits if every_head else logits[:1]:
        joined.graph.output.add().CopyFrom(segments[-1].graph.output[1])
        joined.graph.output[-1].name = name
    _drop_unused(joined.graph)
    _merge_equal(joined.graph)
    return joined


def _append(joined: GraphProto, segment: GraphProto, prefix: str, hidden: str) -> dict[str, str]:
    """Append a segment's nodes and weights under new names; return the names.

    Args:
        joined: the graph that grows.
        segment: the next segment.
        prefix: what its names begin with.
        hidden: the name of the hidden states it continues from; the rows are not chosen anew.
    """
    chosen = _compacted(segment)
    produced = {output for node in segment.node for output in node.output}
    weights = {tensor.name for tensor in segment.initializer}
    names = {"": "", chosen: hidden} | {name: name for name in _SHARED}
    names |= {name: prefix + name for name in (produced | weights) - names.keys()}
    for tensor in segment.initializer:
        joined.initializer.add().CopyFrom(tensor)
        joined.initializer[-1].name = names[tensor.name]
    for node in segment.node:
        if HIDDEN in node.input or chosen in node.output:
            continue
        copy = joined.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [names[name] for name in node.input]
        copy.output[:] = [names[name] for name in node.output]
        copy.name = prefix + node.name
    return names


def _compacted(segment: GraphProto) -> str:
    """Return the name of the hidden states once rows are chosen and padding is cut, or ''."""
    gathers = (node for node in segment.node if list(node.input) == [HIDDEN, KEEP])
    gathered = next((node.output[0] for node in gathers), None)
    cuts = (node for node in segment.node if gathered in node.input)
    return next((node.output[0] for node in cuts), "")


def _drop_unused(graph: GraphProto) -> None:
    """Remove the inner heads and whatever else does not lead to the output."""
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
    wanted = parser.parse_args()
    bundle = load_bundle(wanted.bundle)
    for precision in bundle.manifest.variants:
        folder = wanted.out / precision
        folder.mkdir(parents=True, exist_ok=True)
        print(write_one_graph(bundle, precision, folder))


if __name__ == "__main__":
    main()
