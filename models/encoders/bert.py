"""BERT, and the base class of the families that are built like it."""

from typing import TypeAlias

from torch import Tensor, nn
from transformers import (
    BertModel,
    ElectraModel,
    MobileBertModel,
    RobertaModel,
    XLMRobertaModel,
)

from models.encoders.backbone import Backbone

_BertLike: TypeAlias = BertModel | ElectraModel | MobileBertModel | RobertaModel | XLMRobertaModel


class BertBackbone(Backbone):
    """BERT and models of the same modules: MiniLM, and ElasticBERT under other weight names."""

    encoder: _BertLike

    def __init__(self, encoder: _BertLike) -> None:
        super().__init__(encoder)
        self.has_token_types = encoder.config.type_vocab_size > 1

    @property
    def layers(self) -> nn.ModuleList:
        return self.encoder.encoder.layer

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        types = self.token_types(input_ids, token_type_ids)
        return self.encoder.embeddings(input_ids=input_ids, token_type_ids=types)

    def token_types(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Return the given token types, or (1, 1) zeros if there are none or only one type."""
        if token_type_ids is None or not self.has_token_types:
            return input_ids.new_zeros(1, 1)
        return token_type_ids
