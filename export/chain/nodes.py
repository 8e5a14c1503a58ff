"""Building the graphs that lie inside one another in the joined graph."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray


class Nodes:
    """The nodes of one graph, in order.

    Names of values must differ between all graphs of a model, so every caller gives its own.
    """

    def __init__(self, nodes: Iterable[ir.Node] = ()) -> None:
        self._nodes = list(nodes)

    def op(
        self, op_type: str, inputs: Sequence[ir.Value], output: ir.Value, **attributes: int
    ) -> ir.Value:
        """Add a node with one output and return the output."""
        self._add(op_type, inputs, [output], attributes)
        return output

    def split(self, flags: ir.Value, outputs: Sequence[ir.Value]) -> None:
        """Add a node that takes a vector apart into its elements."""
        self._add("Split", [flags], outputs, {"axis": 0, "num_outputs": len(outputs)})

    def either(
        self, condition: ir.Value, then: ir.Graph, otherwise: ir.Graph, outputs: Sequence[ir.Value]
    ) -> None:
        """Add an `If`; both graphs give the outputs in this order."""
        branches = {"then_branch": then, "else_branch": otherwise}
        self._add("If", [condition], outputs, branches)

    def no_rows(self, like: ir.Value, name: str) -> ir.Value:
        """Add a constant without rows, of the type of another value."""
        assert like.shape is not None
        assert like.dtype is not None
        later = [size if isinstance(size, int) else 1 for size in like.shape[1:]]
        empty = ir.tensor(np.zeros([0, *later], like.dtype.numpy()))
        output = ir.Value(name=name, type=like.type)
        self._add("Constant", [], [output], {"value": empty})
        return output

    def graph(self, name: str, outputs: Sequence[ir.Value]) -> ir.Graph:
        """Return the nodes as a graph that holds all constants they read.

        ONNX Runtime packs weights for its kernels only where they are in the kernel's own graph.
        """
        held: dict[ir.Value, ir.Value] = {}
        for node in self._nodes:
            for place, value in enumerate(node.inputs):
                if value is None or value.const_value is None:
                    continue
                if value not in held:
                    held[value] = _copy_of(value, f"{name}/{len(held)}/{value.name}")
                node.replace_input_with(place, held[value])
        initializers = list(held.values())
        return ir.Graph([], outputs, nodes=self._nodes, initializers=initializers, name=name)

    def _add(
        self,
        op_type: str,
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        attributes: Mapping[str, int | ir.Graph | ir.TensorProtocol],
    ) -> None:
        converted = [ir.convenience.convert_attribute(k, v) for k, v in attributes.items()]
        name = outputs[0].name
        self._nodes.append(ir.Node("", op_type, inputs, converted, outputs=outputs, name=name))


def constant(name: str, array: NDArray[np.int64] | np.int64) -> ir.Value:
    """Return a value that every graph which reads it will hold."""
    tensor = ir.tensor(np.asarray(array), name=name)
    return ir.Value(name=name, type=ir.TensorType(tensor.dtype), const_value=tensor)


def open_value(
    name: str, dtype: ir.DataType | None, sizes: Sequence[int | str | None] | None = None
) -> ir.Value:
    """Return a value for a node to give; its sizes may be unknown."""
    assert dtype is not None
    shape = None if sizes is None else ir.Shape(sizes)
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=shape)


def sizes_of(value: ir.Value) -> list[int | str | None]:
    """Return a value's sizes: numbers, names, or None."""
    assert value.shape is not None
    return [size if isinstance(size, int) else size.value for size in value.shape]


def _copy_of(value: ir.Value, name: str) -> ir.Value:
    assert value.const_value is not None
    shape = ir.Shape(value.const_value.numpy().shape)
    return ir.Value(name=name, type=value.type, shape=shape, const_value=value.const_value)
