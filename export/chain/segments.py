"""One ONNX segment per exit, in every precision."""

from typing import Literal

import onnx_ir as ir

from export.chain.stages import FirstStage, LaterStage, Span
from export.checks.contract import (
    COMPACTED,
    LABELS,
    LATER_INPUTS,
    MASK,
    WIDTH,
    Port,
    check_contract,
    first_inputs,
    segment_outputs,
)
from export.graph.compaction import put_compaction_first
from export.graph.trace import trace
from export.kernels.cpu import pack_attention, suit_cpu
from export.precision.quantize import quantize
from models.multi_exit import MultiExitModel


def segment_inputs(model: MultiExitModel, span: Span) -> tuple[Port, ...]:
    """Return the inputs of the segment of this span."""
    return LATER_INPUTS if span.start else first_inputs(model.backbone.has_token_types)


def build_segment(model: MultiExitModel, span: Span) -> ir.Model:
    """Return the fused fp32 segment of one span, not suited to any device yet.

    Raises:
        ExportFailed: the exporter's graph does not keep the segment contract.
    """
    sizes = {WIDTH: model.config.hidden_size, LABELS: model.config.num_labels}
    inputs, outputs = segment_inputs(model, span), segment_outputs(model.traits)
    if span.start:
        traced = (COMPACTED, MASK)
        segment = trace(LaterStage(model, span).eval(), traced, outputs, sizes)
        put_compaction_first(segment, sizes)
    else:
        segment = trace(FirstStage(model, span).eval(), inputs, outputs, sizes)
    check_contract(segment, inputs, sizes, f"the segment of exit {span.exit_layer}", outputs)
    return segment


def variant(segment: ir.Model, precision: Literal["fp32", "int8"]) -> ir.Model:
    """Return a segment for CPUs; `export.chain.gpu_segments` makes those for GPUs.

    Args:
        segment: from `build_segment`; left as it is.
        precision: of products with weights; hidden states and logits are fp32.
    """
    model = segment.clone()
    suit_cpu(model)
    if precision == "int8":
        return quantize(model)
    pack_attention(model)
    return model
