"""From a PyTorch module to a fused ONNX graph."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript.rewriter.ort_fusions import optimize_for_ort
from torch import Tensor, nn

from export.checks.contract import Port
from export.graph.activations import fuse_activations
from export.graph.constant_folding import fold_weights
from export.graph.translation import dynamic_axes, translate
from export.graph.unpacked_attention import unpack_attention

# The exporter treats sizes 0 and 1, and equal sizes, as fixed. These are neither.
_EXAMPLE_SIZES = {"rows": 2, "tokens": 7}


def trace(
    module: nn.Module, inputs: Sequence[Port], outputs: Sequence[Port], sizes: dict[str, int]
) -> ir.Model:
    """Export a module and fuse it into ONNX Runtime's transformer operators.

    Attention becomes MultiHeadAttention, residual and norm SkipLayerNormalization, the first
    dense layer's bias and activation BiasGelu or FastGelu.

    Args:
        module: in evaluation mode; its arguments are `inputs` in order.
        inputs: names, types and axes of its arguments.
        outputs: names, types and axes of its results.
        sizes: axis sizes of this model, by name.
    """
    arguments = tuple(_example(port, sizes | _EXAMPLE_SIZES) for port in inputs)
    with _quiet(), torch.no_grad():
        captured = torch.export.export(
            module,
            arguments,
            dynamic_shapes=tuple(_varying(port) for port in inputs),
            strict=False,
        )
        model = translate(captured, inputs, outputs)
        fold_weights(model)
        model, _ = optimize_for_ort(model)
        unpack_attention(model)
        fuse_activations(model)
    # Metadata contains stack traces with local paths.
    ClearMetadataAndDocStringPass()(model)
    return model


def _example(port: Port, sizes: dict[str, int]) -> Tensor:
    shape = [sizes[axis] for axis in port.axes]
    if port.element == ir.DataType.FLOAT:
        return torch.zeros(shape)
    return torch.ones(shape, dtype=torch.int64)


def _varying(port: Port) -> dict[int, Any]:
    return dict.fromkeys(dynamic_axes(port), torch.export.Dim.DYNAMIC)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's internal log messages and warnings."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
