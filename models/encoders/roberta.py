"""RoBERTa and XLM-RoBERTa as backbones."""

import torch
from torch import Tensor
from transformers import RobertaModel, XLMRobertaModel

from models.encoders.bert import BertBackbone


class RobertaBackbone(BertBackbone):
    """BERT whose positions begin after the padding id, and which has one token type only.

    transformers counts a token's position over those whose id is not the padding's. In a text
    that does not contain padding that is what `embed` does: count from the first.
    """

    def __init__(self, encoder: RobertaModel | XLMRobertaModel) -> None:
        super().__init__(encoder)
        self._first_position = int(encoder.embeddings.padding_idx) + 1

    @property
    def max_tokens(self) -> int:
        return super().max_tokens - self._first_position

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        first, tokens = self._first_position, input_ids.shape[1]
        positions = torch.arange(first, first + tokens, device=input_ids.device)[None]
        return self.encoder.embeddings(
            input_ids=input_ids,
            token_type_ids=self.token_types(input_ids, token_type_ids),
            position_ids=positions,
        )
