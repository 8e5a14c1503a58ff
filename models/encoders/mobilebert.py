"""MobileBERT: BERT with narrow layers and wide hidden states between them."""

from torch import Tensor

from models.encoders.bert import BertBackbone


class MobileBertBackbone(BertBackbone):
    """BERT's modules; a token's embedding also depends on its neighbours.

    transformers embeds zeros after the last token of a text. Padding that follows the last token
    is therefore embedded as zeros too.
    """

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        embeddings = self.encoder.embeddings
        words = embeddings.word_embeddings(input_ids)
        return embeddings(
            inputs_embeds=words * attention_mask[:, :, None].to(words.dtype),
            token_type_ids=self.token_types(input_ids, token_type_ids),
        )
