"""The graphs with which `serve.runtime.cuda_runner` joins batches.

`python -m export.chain.join_graph` writes them. They are the same for every model, and therefore
part of the server and not of a bundle.
"""

import onnx_ir as ir
from onnx_ir.tape import Tape

from export.graph.translation import OPSET
from serve.bundle.manifest import HIDDEN
from serve.runtime.cuda_runner import GRAPHS, JOINED, PLACES

ELEMENTS = {"fp32": ir.DataType.FLOAT, "fp16": ir.DataType.FLOAT16}
# Old enough for every ONNX Runtime that is supported.
_IR_VERSION = 10


def join_graph(element: ir.DataType) -> ir.Model:
    """Return a graph that copies tokens of hidden states to new places.

    Args:
        element: type of the hidden states (rows_in, tokens_in, width); `places` is
            (rows, tokens, 2): from which row and token each token is copied.
    """
    hidden = _value(HIDDEN, element, ["rows_in", "tokens_in", "width"])
    places = _value(PLACES, ir.DataType.INT64, ["rows", "tokens", 2])
    tape = Tape()
    joined = tape.op("GatherND", [hidden, places])
    joined.name, joined.type = JOINED, ir.TensorType(element)
    joined.shape = ir.Shape(["rows", "tokens", "width"])
    graph = ir.Graph(
        [hidden, places], [joined], nodes=tape.nodes, opset_imports={"": OPSET}, name="join"
    )
    return ir.Model(graph, ir_version=_IR_VERSION)


def _value(name: str, element: ir.DataType, shape: list[str | int]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(element), shape=ir.Shape(shape))


def main() -> None:
    """Write one graph per type of hidden states."""
    GRAPHS.mkdir(exist_ok=True)
    for name, element in ELEMENTS.items():
        ir.save(join_graph(element), GRAPHS / f"join.{name}.onnx")


if __name__ == "__main__":
    main()
