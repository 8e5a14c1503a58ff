"""ModernBERT as a backbone."""

import torch
from torch import Tensor
from transformers import ModernBertModel

from models.encoders.backbone import additive_mask


class ModernBertBackbone:
    """ModernBERT: rotary positions, and attention that is local in most layers.

    Layers normalise what they take, so hidden states between them are not normalised; `read`
    does that with the encoder's final norm, at every exit as at the last.
    """

    has_token_types = False
    shared = False

    def __init__(self, encoder: ModernBertModel) -> None:
        lengthwise = {"dynamic", "longrope"} & set(encoder.rotary_emb.rope_type.values())
        if lengthwise:
            raise ValueError(
                f"rope_type {lengthwise.pop()!r}: only ModernBERT models whose rotary positions "
                "do not depend on how long the batch is are supported"
            )
        self.encoder = encoder

    @property
    def depth(self) -> int:
        return len(self.encoder.layers)

    @property
    def max_tokens(self) -> int:
        return self.encoder.config.max_position_embeddings

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

    def _window(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Return (tokens, tokens): 0 for neighbours, the lowest finite number elsewhere."""
        distances = (positions[:, None] - positions).abs()
        far = distances > self.encoder.config.sliding_window
        return far.to(dtype) * torch.finfo(dtype).min

    def read(self, hidden: Tensor) -> Tensor:
        return self.encoder.final_norm(hidden)
