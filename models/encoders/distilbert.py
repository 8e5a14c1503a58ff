"""DistilBERT as a backbone."""

from torch import Tensor
from transformers import DistilBertModel

from models.encoders.backbone import additive_mask


class DistilBertBackbone:
    """DistilBERT: every other layer of BERT, and no token types."""

    has_token_types = False
    shared = False

    def __init__(self, encoder: DistilBertModel) -> None:
        self.encoder = encoder

    @property
    def depth(self) -> int:
        return len(self.encoder.transformer.layer)

    @property
    def max_tokens(self) -> int:
        return self.encoder.config.max_position_embeddings

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        return self.encoder.embeddings(input_ids)

    def layer(self, index: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        bias = additive_mask(attention_mask, hidden.dtype)
        return self.encoder.transformer.layer[index](hidden, bias)

    def read(self, hidden: Tensor) -> Tensor:
        return hidden
