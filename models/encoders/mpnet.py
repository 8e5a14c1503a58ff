"""MPNet."""

import torch
from torch import Tensor, nn
from transformers import MPNetModel

from models.encoders.backbone import Backbone, additive_mask


class MPNetBackbone(Backbone):
    """MPNet: absolute positions as in RoBERTa, and a bias by relative position in every layer."""

    encoder: MPNetModel

    def __init__(self, encoder: MPNetModel) -> None:
        super().__init__(encoder)
        self.unplaced_id = int(encoder.embeddings.padding_idx)
        self._first_position = self.unplaced_id + 1
        self._buckets = self._bucket_by_distance()

    @property
    def layers(self) -> nn.ModuleList:
        return self.encoder.encoder.layer

    @property
    def max_tokens(self) -> int:
        return super().max_tokens - self._first_position

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        first, tokens = self._first_position, input_ids.shape[1]
        positions = torch.arange(first, first + tokens, device=input_ids.device)[None]
        return self.encoder.embeddings(input_ids=input_ids, position_ids=positions)

    def layer(self, index: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        mask = additive_mask(attention_mask, hidden.dtype) + self._position_bias(hidden)
        output: Tensor = self.layers[index](hidden, mask)[0]
        return output

    def _bucket_by_distance(self) -> Tensor:
        """Return (2 x longest - 1,): the bucket of every distance, the most negative first.

        A bucket is a rounded logarithm. A table gives every runtime the same buckets.
        """
        distances = torch.arange(1 - self.max_tokens, self.max_tokens)
        buckets: Tensor = self.encoder.encoder.relative_position_bucket(distances)
        return buckets

    def _position_bias(self, hidden: Tensor) -> Tensor:
        """Return (1, heads, tokens, tokens), added to the attention scores."""
        tokens = hidden.shape[1]
        # Exported, the whole table is one constant, of which a run takes a part. What a GPU's host
        # computes for each run is copied to the device, and holds it up.
        longest = self.max_tokens if torch.compiler.is_exporting() else tokens
        positions = torch.arange(longest, device=hidden.device)
        distances = positions - positions[:, None] + self.max_tokens - 1
        buckets = self._buckets.to(hidden.device)
        by_distance: Tensor = self.encoder.encoder.relative_attention_bias(buckets)
        return by_distance.T[None, :, distances][..., :tokens, :tokens].to(hidden.dtype)
