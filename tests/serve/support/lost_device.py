"""A device that is lost while it serves: what ONNX Runtime says then, and a bundle that says it."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from serve.bundle.loader import sha256_of
from tests.serve.support.bundles import rewrite_manifest

ILLEGAL_ADDRESS = (
    "CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=gpu ; "
    "file=cuda_stream_handle.cc ; line=66 ; expr=cudaStreamSynchronize(stream);"
)
MOST_ROWS = 32  # of a batch that goes well: the largest of the warm-up
_GRAPH = "segments/fp32/joined.onnx"


def lose_device(folder: Path) -> Path:
    """Change a bundle so that larger batches fail as if the device were lost.

    ONNX Runtime names the node that fails, and this one is called by what CUDA would say.
    """
    model = onnx.load(folder / _GRAPH, load_external_data=False)
    graph = model.graph
    for node in graph.node:
        node.input[:] = ["lost.checked" if name == "input_ids" else name for name in node.input]
    initial = {"lost.none": np.zeros(MOST_ROWS + 1, np.int64), "lost.first": np.array(0, np.int64)}
    graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in initial.items())
    added = [
        helper.make_node("Shape", ["input_ids"], ["lost.shape"]),
        helper.make_node("Gather", ["lost.shape", "lost.first"], ["lost.rows"]),
        helper.make_node(
            "Gather", ["lost.none", "lost.rows"], ["lost.nothing"], name=ILLEGAL_ADDRESS
        ),
        helper.make_node("Add", ["input_ids", "lost.nothing"], ["lost.checked"]),
    ]
    for place, node in enumerate(added):
        graph.node.insert(place, node)
    onnx.save(model, folder / _GRAPH)
    digest = sha256_of(folder / _GRAPH)
    rewrite_manifest(folder, lambda manifest: manifest["files"].update({_GRAPH: digest}))
    return folder
