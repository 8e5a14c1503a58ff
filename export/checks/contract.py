"""The segment contract as data: names, element types and axes."""

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir

from export.errors import ExportFailed
from serve.bundle.manifest import (
    ATTENTION_MASK,
    HIDDEN,
    HIDDEN_OUT,
    INPUT_IDS,
    KEEP,
    LOGITS,
    TOKEN_TYPE_IDS,
    UNCERTAINTY,
)
from serve.rules.traits import Traits

ROWS, TOKENS, ROWS_IN, TOKENS_IN = "rows", "tokens", "rows_in", "tokens_in"
WIDTH, LABELS = "width", "labels"
DYNAMIC_AXES = frozenset({ROWS, TOKENS, ROWS_IN, TOKENS_IN})


class Port(NamedTuple):
    """An input or output of a segment; axes that are not dynamic are fixed per model."""

    name: str
    element: ir.DataType
    axes: tuple[str, ...]


_IDS = Port(INPUT_IDS, ir.DataType.INT64, (ROWS, TOKENS))
MASK = Port(ATTENTION_MASK, ir.DataType.INT64, (ROWS, TOKENS))
_TOKEN_TYPES = Port(TOKEN_TYPE_IDS, ir.DataType.INT64, (ROWS, TOKENS))
CARRIED = Port(HIDDEN, ir.DataType.FLOAT, (ROWS_IN, TOKENS_IN, WIDTH))
CHOSEN = Port(KEEP, ir.DataType.INT64, (ROWS,))
# The layers' input: the chosen rows, cut to the mask's width.
COMPACTED = Port("compacted", ir.DataType.FLOAT, (ROWS, TOKENS, WIDTH))

LATER_INPUTS = (CARRIED, CHOSEN, MASK)
_PASSED_ON = Port(HIDDEN_OUT, ir.DataType.FLOAT, (ROWS, TOKENS, WIDTH))
_LOGITS = Port(LOGITS, ir.DataType.FLOAT, (ROWS, LABELS))
_TOKEN_LOGITS = Port(LOGITS, ir.DataType.FLOAT, (ROWS, TOKENS, LABELS))
_UNCERTAINTY = Port(UNCERTAINTY, ir.DataType.FLOAT, (ROWS,))


def segment_outputs(traits: Traits) -> tuple[Port, ...]:
    """Return the outputs of a segment of this model: hidden states, then those of its head."""
    logits = _TOKEN_LOGITS if traits.task == "token" else _LOGITS
    return (_PASSED_ON, logits, _UNCERTAINTY) if traits.learned else (_PASSED_ON, logits)


def first_inputs(token_types: bool) -> tuple[Port, ...]:
    """Return the first segment's inputs."""
    return (_IDS, MASK, _TOKEN_TYPES) if token_types else (_IDS, MASK)


def check_contract(
    model: ir.Model,
    inputs: Sequence[Port],
    sizes: dict[str, int],
    place: str,
    outputs: Sequence[Port],
) -> None:
    """Compare a graph's declared inputs and outputs with the contract.

    Args:
        model: the graph.
        inputs: that the graph should have.
        sizes: width and labels of this model.
        place: the graph's name in a message.
        outputs: that the graph should have.

    Raises:
        ExportFailed: an input or output differs.
    """
    declared = (*model.graph.inputs, *model.graph.outputs)
    expected = (*inputs, *outputs)
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
