"""ModernBERT: rotary positions, and attention that is local in most layers."""

import torch
from torch import Tensor, nn
from transformers import ModernBertModel

from models.encoders.backbone import Backbone, additive_mask


class ModernBertBackbone(Backbone):
    """ModernBERT's modules under the common interface.

    Layers normalise their input, so hidden states between layers are not normalised. Every exit
    head reads them through the encoder's final norm.
    """

    encoder: ModernBertModel

    def __init__(self, encoder: ModernBertModel) -> None:
        by_length = {"dynamic", "longrope"} & set(encoder.rotary_emb.rope_type.values())
        if by_length:
            raise ValueError(
                f"rope_type {by_length.pop()!r}: only ModernBERT models whose rotary positions "
                "do not depend on how long the batch is are supported"
            )
        super().__init__(encoder)

    @property
    def layers(self) -> nn.ModuleList:
        return self.encoder.layers

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        return self.encoder.embeddings(input_ids)

    def layer(self, index: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        layer = self.encoder.layers[index]
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        bias = additive_mask(attention_mask, hidden.dtype)
        if layer.attention_type == "sliding_attention":
            bias = torch.minimum(bias, self._window(positions, hidden.dtype))
        rotary = self.encoder.rotary_emb(hidden, positions[None], layer.attention_type)
        return layer(hidden, bias, rotary)

    def head_input(self, hidden: Tensor) -> Tensor:
        return self.encoder.final_norm(hidden)

    def _window(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Return (tokens, tokens): 0 for neighbours, the lowest finite number elsewhere."""
        distances = (positions[:, None] - positions).abs()
        far = distances > self.encoder.config.sliding_window
        return far.to(dtype) * torch.finfo(dtype).min
