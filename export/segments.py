"""One ONNX segment per exit, in fp32."""

import onnx_ir as ir

from export.compaction import put_compaction_first
from export.contract import (
    COMPACTED,
    LABELS,
    LATER_INPUTS,
    MASK,
    OUTPUTS,
    WIDTH,
    Port,
    check_contract,
    first_inputs,
)
from export.cpu_kernels import suit_cpu
from export.stages import FirstStage, LaterStage, Span
from export.trace import trace
from models.multi_exit import MultiExitModel


def segment_inputs(model: MultiExitModel, span: Span) -> tuple[Port, ...]:
    """Return what the segment of this span takes."""
    return LATER_INPUTS if span.start else first_inputs(model.backbone.has_token_types)


def build_segment(model: MultiExitModel, span: Span) -> ir.Model:
    """Return the fused fp32 segment of one span.

    Raises:
        ExportFailed: the exporter's graph does not keep the segment contract.
    """
    sizes = {WIDTH: model.config.hidden_size, LABELS: model.config.num_labels}
    inputs = segment_inputs(model, span)
    if span.start:
        traced = (COMPACTED, MASK)
        segment = trace(LaterStage(model, span).eval(), traced, OUTPUTS, sizes)
        put_compaction_first(segment, sizes)
    else:
        segment = trace(FirstStage(model, span).eval(), inputs, OUTPUTS, sizes)
    suit_cpu(segment)
    check_contract(segment, inputs, sizes, f"the segment of exit {span.exit_layer}")
    return segment
