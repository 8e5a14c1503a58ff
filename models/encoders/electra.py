"""ELECTRA: BERT whose embeddings may be narrower than its layers."""

from torch import Tensor

from models.encoders.bert import BertBackbone


class ElectraBackbone(BertBackbone):
    """BERT's modules, and a projection of narrow embeddings to the layers' width."""

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        embedded = super().embed(input_ids, token_type_ids, attention_mask)
        project = getattr(self.encoder, "embeddings_project", None)
        return embedded if project is None else project(embedded)
