"""ALBERT: one layer that runs as often as the model is deep."""

from collections.abc import Sequence

from torch import Tensor, nn
from transformers import AlbertModel

from models.encoders.backbone import Backbone


class AlbertBackbone(Backbone):
    """ALBERT whose layers all share one set of weights, as in every published model.

    Embeddings may be narrower than the layers; `embed` maps them to the layers' width.
    """

    encoder: AlbertModel
    shared = True

    def __init__(self, encoder: AlbertModel) -> None:
        config = encoder.config
        if (config.num_hidden_groups, config.inner_group_num) != (1, 1):
            raise ValueError(
                f"num_hidden_groups {config.num_hidden_groups} and inner_group_num "
                f"{config.inner_group_num}: only ALBERT models in which all layers share one set "
                "of weights are supported, with 1 for both"
            )
        super().__init__(encoder)
        self.has_token_types = config.type_vocab_size > 1

    @property
    def layers(self) -> Sequence[nn.Module]:
        stack = self.encoder.encoder
        return [stack.albert_layer_groups[0]] * self.encoder.config.num_hidden_layers

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        types = token_type_ids if self.has_token_types else None
        embedded = self.encoder.embeddings(input_ids=input_ids, token_type_ids=types)
        return self.encoder.encoder.embedding_hidden_mapping_in(embedded)
