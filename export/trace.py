"""From PyTorch to a fused ONNX graph."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript.rewriter.ort_fusions import optimize_for_ort
from torch import Tensor, nn

from export.activations import fuse_activations
from export.contract import DYNAMIC_AXES, Port
from export.weights import fold_weights

OPSET = 18
# The exporter specialises on sizes 0 and 1 and on sizes that coincide.
_EXAMPLE_SIZES = {"rows": 2, "tokens": 7}


def trace(
    module: nn.Module, inputs: Sequence[Port], outputs: Sequence[Port], sizes: dict[str, int]
) -> ir.Model:
    """Export a module and fuse it into ONNX Runtime's transformer operators.

    Attention becomes MultiHeadAttention, residual and norm SkipLayerNormalization, the first
    dense layer's bias and activation BiasGelu or FastGelu.

    Args:
        module: in evaluation mode; takes `inputs` in order.
        inputs: names, types and axes of its arguments.
        outputs: the same of its results.
        sizes: width and labels of this model.
    """
    arguments = tuple(_example(port, sizes | _EXAMPLE_SIZES) for port in inputs)
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            module,
            arguments,
            dynamo=True,
            opset_version=OPSET,
            input_names=[port.name for port in inputs],
            output_names=[port.name for port in outputs],
            dynamic_shapes=tuple(_dynamic(port) for port in inputs),
            verbose=False,
        )
        assert program is not None  # None only if it is told to write a file
        fold_weights(program.model)
        model, _ = optimize_for_ort(program.model)
        fuse_activations(model)
    # Metadata holds stack traces, with the paths of the machine that exported.
    ClearMetadataAndDocStringPass()(model)
    return model


def _example(port: Port, sizes: dict[str, int]) -> Tensor:
    shape = [sizes[axis] for axis in port.axes]
    if port.element == ir.DataType.FLOAT:
        return torch.zeros(shape)
    return torch.ones(shape, dtype=torch.int64)


def _dynamic(port: Port) -> dict[int, torch.export.Dim]:
    return {i: torch.export.Dim(a) for i, a in enumerate(port.axes) if a in DYNAMIC_AXES}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's notes about itself from a user who can do nothing about them."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
