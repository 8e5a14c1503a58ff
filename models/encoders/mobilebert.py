"""MobileBERT as a backbone."""

from torch import Tensor

from models.encoders.bert import BertBackbone


class MobileBertBackbone(BertBackbone):
    """BERT with narrow layers, between which hidden states are wide.

    A token's embedding is made of its neighbours' too. The last token of a text has none after
    it, for which transformers takes zeros; so does this where padding follows.
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
