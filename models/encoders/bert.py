"""BERT as a backbone."""

from typing import TypeAlias

from torch import Tensor
from transformers import (
    BertModel,
    ElectraModel,
    MobileBertModel,
    RobertaModel,
    XLMRobertaModel,
)

from models.encoders.backbone import additive_mask

_BuiltAlike: TypeAlias = BertModel | ElectraModel | MobileBertModel | RobertaModel | XLMRobertaModel


class BertBackbone:
    """BERT and what shares its modules: MiniLM, and ElasticBERT under other weight names.

    Families built in the same way derive from this and say what they do otherwise.
    """

    shared = False

    def __init__(self, encoder: _BuiltAlike) -> None:
        self.encoder = encoder
        self.has_token_types = encoder.config.type_vocab_size > 1

    @property
    def depth(self) -> int:
        return len(self.encoder.encoder.layer)

    @property
    def max_tokens(self) -> int:
        return self.encoder.config.max_position_embeddings

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        types = self.token_types(input_ids, token_type_ids)
        return self.encoder.embeddings(input_ids=input_ids, token_type_ids=types)

    def token_types(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Return token types, or (1, 1) zeros where there are none or only one exists."""
        if token_type_ids is None or not self.has_token_types:
            return input_ids.new_zeros(1, 1)
        return token_type_ids

    def layer(self, index: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        bias = additive_mask(attention_mask, hidden.dtype)
        return self.encoder.encoder.layer[index](hidden, bias)

    def read(self, hidden: Tensor) -> Tensor:
        return hidden
