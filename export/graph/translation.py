"""Translation of captured programs to ONNX, once for programs that differ in weights only.

Translation takes nearly all the time of an export, and an encoder's layers have equal structures.
"""

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor
from torch import Tensor
from torch.export import ExportedProgram
from torch.onnx import ONNXProgram

from export.checks.contract import DYNAMIC_AXES, Port
from export.graph.structure import structure, weights

OPSET = 18


class _Template(NamedTuple):
    """A translated program without its weights' values, and the names of the weights in order."""

    model: ir.Model
    names: tuple[str, ...]


# By structure and inputs. One process exports few structures, so entries are never removed.
_templates: dict[tuple[str, tuple[Port, ...]], _Template] = {}


def dynamic_axes(port: Port) -> dict[int, str]:
    """Return the index and name of each axis of a port whose size varies."""
    return {i: axis for i, axis in enumerate(port.axes) if axis in DYNAMIC_AXES}


def translate(
    program: ExportedProgram, inputs: Sequence[Port], outputs: Sequence[Port]
) -> ir.Model:
    """Return a program as an ONNX graph, optimized but not fused.

    Args:
        program: a captured program.
        inputs: names and axes of its arguments, in order.
        outputs: names of its results, in order.
    """
    key = structure(program), tuple(inputs)
    if key not in _templates:
        _templates[key] = _template(program, inputs)
    filled = ONNXProgram(_fill(_templates[key], weights(program)), program)
    filled.optimize()
    # Only now: optimization has split an output that is returned twice.
    for value, port in zip(filled.model.graph.outputs, outputs, strict=True):
        value.name = port.name
    return filled.model


def _template(program: ExportedProgram, inputs: Sequence[Port]) -> _Template:
    translated = torch.onnx.export(
        program,
        dynamo=True,
        opset_version=OPSET,
        input_names=[port.name for port in inputs],
        dynamic_shapes=tuple(dynamic_axes(port) for port in inputs),
        optimize=False,
        verbose=False,
    )
    assert translated is not None  # None only if the exporter writes a file
    model, names = translated.model, tuple(weights(program))
    for name, value in list(model.graph.initializers.items()):
        if not value.uses():
            del model.graph.initializers[name]
        elif name in names:
            value.const_value = None
    return _Template(model, names)


def _fill(template: _Template, tensors: dict[str, Tensor]) -> ir.Model:
    """Return a copy with these weights, given in the template's order."""
    model = template.model.clone()
    initializers = model.graph.initializers
    # The exporter drops weights that nothing reads.
    places = [initializers.pop(name, None) for name in template.names]
    for place, (name, tensor) in zip(places, tensors.items(), strict=True):
        if place is None:
            continue
        place.name = name
        place.const_value = TorchTensor(tensor, name=name)
        initializers[name] = place
    return model
