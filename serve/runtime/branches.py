"""What a segment gives, and graphs that give as much without running it."""

from collections.abc import Sequence

import numpy as np

from serve.bundle.manifest import HIDDEN_OUT
from serve.runtime.onnx_wire import NAME, OUTPUT, element_of, fields, rank_of
from serve.runtime.onnx_writing import NUMPY_TYPES, Pieces, constant, node, string, value
from serve.runtime.segment_model import SegmentModel


class SegmentOutputs:
    """What segments give, by type and number of dimensions.

    Sizes are not passed on: of equal ones, ONNX Runtime may put a value where another was, and
    none of these has rows where its segment does not run.

    Attributes:
        said: what heads say.
        kinds: type and number of dimensions of each.
    """

    def __init__(self, segment: SegmentModel) -> None:
        self.said = [name for name in segment.outputs if name != HIDDEN_OUT]
        self.kinds = {name: kind_of(whole) for name, whole in segment.outputs.items()}

    def like(self, output: str, field: int, name: str) -> bytes:
        """Return an input or output that is like one of the segments'."""
        return value(field, name, *self.kinds[output])

    def no_rows(self, where: str) -> Pieces:
        """Return what a graph says in which no head runs."""
        parts: Pieces = []
        for name in self.said:
            parts += self.nothing_like(name, f"{name} {where}")
        return parts

    def nothing_like(self, output: str, name: str) -> Pieces:
        """Return a graph's output that has no rows."""
        return [no_rows(name, *self.kinds[output]), self.like(output, OUTPUT, name)]


def kind_of(whole: memoryview) -> tuple[int, int | None]:
    """Return type and number of dimensions of a model's input or output."""
    ((_, _, content, _),) = fields(whole)
    return element_of(content), rank_of(content)


def no_rows(name: str, element: int, rank: int | None) -> bytes:
    """Return a value of no rows."""
    return constant(name, np.zeros([0, *[1] * ((rank or 1) - 1)], NUMPY_TYPES[element]))


def either(condition: str, given: Sequence[str], then: Pieces, otherwise: Pieces) -> Pieces:
    """Return an `If`.

    Args:
        condition: a bool, by name.
        given: names of what it gives.
        then: the graph that runs if so.
        otherwise: the graph that runs if not.
    """
    graphs = {"then_branch": then, "else_branch": otherwise}
    named = {branch: [string(NAME, branch), *graph] for branch, graph in graphs.items()}
    return node("If", [condition], given, graphs=named)
