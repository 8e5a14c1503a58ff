"""RoBERTa and XLM-RoBERTa: BERT with other positions and a single token type."""

import torch
from torch import Tensor
from transformers import RobertaModel, XLMRobertaModel

from models.encoders.bert import BertBackbone


class RobertaBackbone(BertBackbone):
    """BERT's modules; positions are counted from the padding id plus one.

    transformers counts only tokens that are not padding. Padding is on the right, so counting
    from the first token gives the same positions.
    """

    def __init__(self, encoder: RobertaModel | XLMRobertaModel) -> None:
        super().__init__(encoder)
        if encoder.config.pad_token_id is None:
            raise ValueError(
                "pad_token_id is null, and positions are counted from it: write the id of the "
                "tokenizer's padding token"
            )
        self.unplaced_id = int(encoder.config.pad_token_id)
        self._first_position = self.unplaced_id + 1

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
