"""What a multi-exit model needs of a transformers encoder, one adapter per family."""

from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import BertModel, PreTrainedConfig, PreTrainedModel


class Backbone(Protocol):
    """An encoder taken apart: embeddings, then layers called one at a time."""

    encoder: PreTrainedModel
    has_token_types: bool

    @property
    def depth(self) -> int:
        """Number of transformer layers."""
        ...

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Return (rows, tokens, width) embeddings for (rows, tokens) ids."""
        ...

    def layer(self, index: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Run the layer with this index, counted from 0.

        Args:
            index: which layer.
            hidden: (rows, tokens, width).
            attention_mask: (rows, tokens), 1 for real tokens, 0 for padding.
        """
        ...


class BertBackbone:
    """BERT and what shares its modules (MiniLM, for one)."""

    has_token_types = True

    def __init__(self, encoder: BertModel) -> None:
        self.encoder = encoder

    @property
    def depth(self) -> int:
        return len(self.encoder.encoder.layer)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        return self.encoder.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)

    def layer(self, index: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        bias = additive_mask(attention_mask, hidden.dtype)
        return self.encoder.encoder.layer[index](hidden, bias)


def additive_mask(attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return (rows, 1, 1, tokens): 0 where attended, the lowest finite number elsewhere."""
    return (1 - attention_mask[:, None, None, :].to(dtype)) * torch.finfo(dtype).min


def build_encoder(config: PreTrainedConfig) -> PreTrainedModel:
    """Return a randomly initialised encoder for the config, without its own pooler."""
    if config.model_type != "bert":
        raise ValueError(f"model type {config.model_type!r} is not supported: use a BERT encoder")
    config._attn_implementation = "sdpa"
    return BertModel(config, add_pooling_layer=False)


def adapt(encoder: nn.Module) -> Backbone:
    """Return the adapter for an encoder."""
    if isinstance(encoder, BertModel):
        return BertBackbone(encoder)
    raise ValueError(f"no backbone adapter for {type(encoder).__name__}: use a BERT encoder")
