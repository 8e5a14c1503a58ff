"""Replacing one node of a graph by several nodes."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

CONTRIB = "com.microsoft"
_Attributes = Mapping[str, int | float | str]


class Splice:
    """New nodes that are inserted before one node of a graph, or replace it.

    Attributes:
        place: the existing node.
    """

    def __init__(self, model: ir.Model, place: ir.Node) -> None:
        self.place = place
        self._graph = model.graph
        self._tape = Tape()
        self._domains = model.opset_imports

    def op(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        attributes: _Attributes | None = None,
        domain: str = "",
    ) -> ir.Value:
        """Add a node and return its only output."""
        if domain:
            self._domains.setdefault(domain, 1)
        return self._tape.op(op_type, inputs, attributes, domain=domain)

    def constant(self, name: str, array: np.ndarray | np.generic) -> ir.Value:
        """Add an initializer, named after the place."""
        full_name = f"{self.place.outputs[0].name}.{name}"
        return self._tape.initializer(ir.tensor(np.asarray(array), name=full_name))

    def insert(self) -> None:
        """Insert the nodes before the place."""
        for initializer in self._tape.initializers:
            self._graph.register_initializer(initializer)
        self._graph.insert_before(self.place, self._tape.nodes)

    def replace(self, result: ir.Value, obsolete: Sequence[ir.Node] = ()) -> None:
        """Replace the place by the nodes: `result` becomes its first output.

        Args:
            result: one of the new nodes' outputs; gets name, type, shape and uses of the old one.
            obsolete: further nodes to remove, which are then unused.
        """
        self.insert()
        old = self.place.outputs[0]
        result.type, result.shape = old.type, old.shape
        ir.convenience.replace_all_uses_with(old, result, replace_graph_outputs=True)
        self._graph.remove([self.place, *obsolete], safe=True)
        result.name = old.name
