"""The graphs of a model whose layers are one layer: embeddings, that layer, one head per exit.

The layer pools too, because pooling has no weights: so the heads read one vector per row, and
only few bytes are sorted by depth when rows at several depths run together.
"""

import onnx_ir as ir
import torch
from torch import Tensor, nn

from export.compaction import put_compaction_first
from export.contract import (
    COMPACTED,
    LABELS,
    LATER_INPUTS,
    MASK,
    PASSED_ON,
    SAID,
    TO_HEADS,
    WIDTH,
    check_contract,
    embed_inputs,
)
from export.stages import Span
from export.trace import trace
from models.multi_exit import ExitHead, MultiExitModel

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
    sizes, outputs = _sizes(model), (PASSED_ON, TO_HEADS)
    graph = trace(_Layer(model).eval(), (COMPACTED, MASK), outputs, sizes)
    put_compaction_first(graph, sizes)
    check_contract(graph, LATER_INPUTS, sizes, "the graph of the layer", outputs)
    return graph


def build_head(model: MultiExitModel, span: Span) -> ir.Model:
    """Return the fused fp32 graph of the head that ends a span."""
    sizes = _sizes(model)
    graph = trace(_Head(model.heads[span.head]).eval(), (TO_HEADS,), (SAID,), sizes)
    check_contract(graph, (TO_HEADS,), sizes, f"the head of exit {span.exit_layer}", (SAID,))
    return graph


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
    def __init__(self, model: MultiExitModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.model.backbone.layer(0, hidden, attention_mask)
        read = self.model.backbone.read(hidden)
        return hidden, self.model.heads[0].pool(read, attention_mask)


class _Head(nn.Module):
    def __init__(self, head: ExitHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, pooled: Tensor) -> Tensor:
        return self.head.classify(pooled)
