"""DistilBERT: BERT with half the layers and without token types."""

from torch import Tensor, nn
from transformers import DistilBertModel

from models.encoders.backbone import Backbone


class DistilBertBackbone(Backbone):
    """DistilBERT's modules under the common interface."""

    encoder: DistilBertModel

    @property
    def layers(self) -> nn.ModuleList:
        return self.encoder.transformer.layer

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        return self.encoder.embeddings(input_ids)
