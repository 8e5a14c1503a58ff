"""The graphs with which `serve.runtime.row_taker` chooses rows and joins batches.

`python -m export.chain.take_graph` writes them. They are the same for every model, and therefore
part of the server and not of a bundle.
"""

import onnx_ir as ir
from onnx_ir.tape import Tape

from export.graph.translation import OPSET
from serve.bundle.manifest import HIDDEN
from serve.runtime.row_taker import GRAPHS, PLACES, TAKEN

ELEMENTS = {"float16": ir.DataType.FLOAT16, "float32": ir.DataType.FLOAT}
# Old enough for every ONNX Runtime that is supported.
_IR_VERSION = 10


def take_graph(element: ir.DataType) -> ir.Model:
    """Return a graph that copies tokens of hidden states to new places.

    Args:
        element: type of the hidden states (tokens_in, width), of all rows one after another;
            `places` is (rows, tokens): which of them each token is copied from.
    """
    hidden = _value(HIDDEN, element, ["tokens_in", "width"])
    places = _value(PLACES, ir.DataType.INT32, ["rows", "tokens"])
    tape = Tape()
    taken = tape.op("Gather", [hidden, places], {"axis": 0})
    taken.name, taken.type = TAKEN, ir.TensorType(element)
    taken.shape = ir.Shape(["rows", "tokens", "width"])
    graph = ir.Graph(
        [hidden, places], [taken], nodes=tape.nodes, opset_imports={"": OPSET}, name="take"
    )
    return ir.Model(graph, ir_version=_IR_VERSION)


def _value(name: str, element: ir.DataType, shape: list[str | int]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(element), shape=ir.Shape(shape))


def main() -> None:
    """Write one graph per type of hidden states."""
    GRAPHS.mkdir(exist_ok=True)
    for name, element in ELEMENTS.items():
        ir.save(take_graph(element), GRAPHS / f"take.{name}.onnx")


if __name__ == "__main__":
    main()
