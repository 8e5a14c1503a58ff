"""BERT as a backbone."""

from torch import Tensor
from transformers import BertModel

from models.backbone import additive_mask


class BertBackbone:
    """BERT and what shares its modules (MiniLM, for one)."""

    has_token_types = True
    shared = False

    def __init__(self, encoder: BertModel) -> None:
        self.encoder = encoder

    @property
    def depth(self) -> int:
        return len(self.encoder.encoder.layer)

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        return self.encoder.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)

    def layer(self, index: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        bias = additive_mask(attention_mask, hidden.dtype)
        return self.encoder.encoder.layer[index](hidden, bias)

    def read(self, hidden: Tensor) -> Tensor:
        return hidden
