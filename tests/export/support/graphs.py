"""Graphs as the CPU provider runs them, and the operators of a bundle's segments."""

from collections import Counter
from pathlib import Path

import onnx
import onnx_ir as ir
import onnxruntime as ort

from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.runtime.ort_session import plain_options


def open_graph(graph: ir.Model | Path) -> ort.InferenceSession:
    model = graph if isinstance(graph, Path) else ir.to_proto(graph).SerializeToString()
    return ort.InferenceSession(model, plain_options(2), providers=["CPUExecutionProvider"])


def graph_of(bundle: Bundle, precision: Precision, index: int) -> onnx.GraphProto:
    """Return a segment's graph without the weights that lie in another file."""
    return onnx.load(bundle.segment_paths(precision)[index], load_external_data=False).graph


def ops(bundle: Bundle, precision: Precision, index: int) -> Counter[str]:
    return Counter(node.op_type for node in graph_of(bundle, precision, index).node)
