"""DeBERTa, versions 2 and 3."""

import torch
from torch import Tensor, nn
from transformers import DebertaV2Model
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

from models.encoders.backbone import Backbone


class DebertaBackbone(Backbone):
    """DeBERTa-v2 and -v3: attention also by relative position, in buckets for distant tokens."""

    encoder: DebertaV2Model

    def __init__(self, encoder: DebertaV2Model) -> None:
        super().__init__(encoder)
        self.has_token_types = encoder.config.type_vocab_size > 1
        self._buckets = self._bucket_by_distance()

    @property
    def layers(self) -> nn.ModuleList:
        return self.encoder.encoder.layer

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        types = token_type_ids if self.has_token_types else None
        return self.encoder.embeddings(input_ids, types, mask=attention_mask)

    def layer(self, index: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        stack = self.encoder.encoder
        output, _ = stack.layer[index](
            hidden,
            stack.get_attention_mask(attention_mask),
            relative_pos=self._relative_positions(hidden),
            rel_embeddings=stack.get_rel_embedding(),
        )
        if index == 0 and stack.conv is not None:
            output = stack.conv(hidden, output, attention_mask)
        return output

    def _bucket_by_distance(self) -> Tensor | None:
        """Return (2 x longest - 1,): the bucket of every distance, the most negative first.

        A bucket is a rounded logarithm. Computed in another runtime or in half precision, some
        tokens would fall into the neighbouring bucket, so buckets are stored as a table.
        """
        stack = self.encoder.encoder
        if not stack.relative_attention:
            return None
        one, all_tokens = torch.empty(1, 1), torch.empty(self.max_tokens, 1)
        settings = stack.position_buckets, stack.max_relative_positions
        before = build_relative_position(one, all_tokens, *settings)[0, 0]
        after = build_relative_position(all_tokens, one, *settings)[0, :, 0]
        return torch.cat([before.flip(0)[:-1], after])

    def _relative_positions(self, hidden: Tensor) -> Tensor | None:
        """Return (1, tokens, tokens)."""
        if self._buckets is None:
            return None
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        distances = positions[:, None] - positions + self.max_tokens - 1
        return self._buckets.to(hidden.device)[distances][None]
