"""The segment contract as data: names, element types and axes, read by export and by checks."""

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir

from export.errors import ExportFailed
from serve.manifest import (
    ATTENTION_MASK,
    HIDDEN,
    HIDDEN_OUT,
    INPUT_IDS,
    KEEP,
    LOGITS,
    TOKEN_TYPE_IDS,
)

ROWS, TOKENS, ROWS_IN, TOKENS_IN = "rows", "tokens", "rows_in", "tokens_in"
WIDTH, LABELS = "width", "labels"
DYNAMIC_AXES = frozenset({ROWS, TOKENS, ROWS_IN, TOKENS_IN})


class Port(NamedTuple):
    """An input or output of a segment; the axes that are not dynamic are fixed per model."""

    name: str
    element: ir.DataType
    axes: tuple[str, ...]


_IDS = Port(INPUT_IDS, ir.DataType.INT64, (ROWS, TOKENS))
MASK = Port(ATTENTION_MASK, ir.DataType.INT64, (ROWS, TOKENS))
_TOKEN_TYPES = Port(TOKEN_TYPE_IDS, ir.DataType.INT64, (ROWS, TOKENS))
CARRIED = Port(HIDDEN, ir.DataType.FLOAT, (ROWS_IN, TOKENS_IN, WIDTH))
CHOSEN = Port(KEEP, ir.DataType.INT64, (ROWS,))
# What the layers see once the chosen rows are gathered and cut to the mask's width.
COMPACTED = Port("compacted", ir.DataType.FLOAT, (ROWS, TOKENS, WIDTH))

LATER_INPUTS = (CARRIED, CHOSEN, MASK)
OUTPUTS = (
    Port(HIDDEN_OUT, ir.DataType.FLOAT, (ROWS, TOKENS, WIDTH)),
    Port(LOGITS, ir.DataType.FLOAT, (ROWS, LABELS)),
)


def first_inputs(token_types: bool) -> tuple[Port, ...]:
    """Return the first segment's inputs."""
    return (_IDS, MASK, _TOKEN_TYPES) if token_types else (_IDS, MASK)


def check_contract(
    model: ir.Model, inputs: Sequence[Port], sizes: dict[str, int], place: str
) -> None:
    """Compare a segment's declared inputs and outputs with the contract.

    Args:
        model: the segment.
        inputs: what it should take; every segment gives `OUTPUTS`.
        sizes: width and labels of this model.
        place: how to name the segment in a message.

    Raises:
        ExportFailed: naming the first input or output that differs, and how.
    """
    declared = (*model.graph.inputs, *model.graph.outputs)
    expected = (*inputs, *OUTPUTS)
    names = [value.name for value in declared]
    if names != [port.name for port in expected]:
        raise ExportFailed(f"{place} has {names}, expected {[port.name for port in expected]}")
    for value, port in zip(declared, expected, strict=True):
        shape = tuple(sizes.get(axis, axis) for axis in port.axes)
        found = tuple(_plain(dim) for dim in value.shape or ())
        if (value.dtype, found) != (port.element, shape):
            raise ExportFailed(
                f"{place}: {port.name} is {value.dtype} {found}, expected {port.element} {shape}"
            )


def _plain(dim: int | ir.SymbolicDim) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value
