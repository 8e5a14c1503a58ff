"""The graphs of a model whose layers are one layer: embeddings, that layer, one head per exit.

The layer pools too, because pooling has no weights: so the heads read one vector per row, and
only few bytes are sorted by depth when rows at several depths run together.
"""

import onnx_ir as ir
import torch
from torch import Tensor, nn

from export.chain.stages import Results, Span, given
from export.checks.contract import (
    COMPACTED,
    LABELS,
    LATER_INPUTS,
    MASK,
    PASSED_ON,
    WIDTH,
    check_contract,
    embed_inputs,
    head_outputs,
    to_heads,
)
from export.errors import ExportFailed
from export.graph.compaction import put_compaction_first
from export.graph.trace import trace
from models.heads import ExitHead
from models.multi_exit import MultiExitModel

EMBED, LAYER = "embed", "layer"


def head_stem(exit_layer: int) -> str:
    """Return where the head after a layer goes in each variant's folder."""
    return f"heads/{exit_layer:02d}"


def build_embeddings(model: MultiExitModel) -> ir.Model:
    """Return the fused fp32 graph from ids to the hidden states before layer 1, as traced.

    Raises:
        ExportFailed: the exporter's graph does not keep the contract; so below.
    """
    inputs, sizes = embed_inputs(model.backbone.has_token_types), _sizes(model)
    graph = trace(_Embeddings(model).eval(), inputs, (PASSED_ON,), sizes)
    check_contract(graph, inputs, sizes, "the graph of the embeddings", (PASSED_ON,))
    return graph


def build_layer(model: MultiExitModel) -> ir.Model:
    """Return the fused fp32 graph of the one layer, which begins with choosing rows."""
    head = _pooling_head(model, 0)
    sizes, outputs = _sizes(model), (PASSED_ON, to_heads(model.traits))
    graph = trace(_Layer(model, head).eval(), (COMPACTED, MASK), outputs, sizes)
    put_compaction_first(graph, sizes)
    check_contract(graph, LATER_INPUTS, sizes, "the graph of the layer", outputs)
    return graph


def build_head(model: MultiExitModel, span: Span) -> ir.Model:
    """Return the fused fp32 graph of the head that ends a span."""
    sizes, inputs, outputs = _sizes(model), (to_heads(model.traits),), head_outputs(model.traits)
    graph = trace(_Head(_pooling_head(model, span.head)).eval(), inputs, outputs, sizes)
    check_contract(graph, inputs, sizes, f"the head of exit {span.exit_layer}", outputs)
    return graph


def _pooling_head(model: MultiExitModel, index: int) -> ExitHead:
    """Return a head that reads what the layer has pooled.

    Raises:
        ExportFailed: it reads all tokens and the mask too.
    """
    head = model.head(index)
    if not isinstance(head, ExitHead):
        raise ExportFailed(
            "a model whose layers share weights cannot have heads that attend to all tokens "
            "(kind 'attention'); give it pooled ones"
        )
    return head


def _sizes(model: MultiExitModel) -> dict[str, int]:
    return {WIDTH: model.config.hidden_size, LABELS: model.config.num_labels}


class _Embeddings(nn.Module):
    def __init__(self, model: MultiExitModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        everything = torch.ones_like(input_ids)
        return self.model.backbone.embed(input_ids, token_type_ids, everything)


class _Layer(nn.Module):
    """The layer, and the pooling that all heads share, without weights."""

    def __init__(self, model: MultiExitModel, head: ExitHead) -> None:
        super().__init__()
        self.model = model
        self.head = head

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.model.backbone.layer(0, hidden, attention_mask)
        read = self.model.backbone.head_input(hidden)
        return hidden, self.head.pool(read, attention_mask)


class _Head(nn.Module):
    def __init__(self, head: ExitHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, pooled: Tensor) -> Results:
        return given(self.head.classify(pooled))
