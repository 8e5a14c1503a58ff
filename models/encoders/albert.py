"""ALBERT as a backbone: one layer that runs as often as the model is deep."""

from torch import Tensor
from transformers import AlbertModel

from models.encoders.backbone import additive_mask


class AlbertBackbone:
    """ALBERT whose layers all share one set of weights, as in every published model.

    Embeddings may be narrower than the layers; the mapping between belongs to `embed`.
    """

    has_token_types = True
    shared = True

    def __init__(self, encoder: AlbertModel) -> None:
        config = encoder.config
        if (config.num_hidden_groups, config.inner_group_num) != (1, 1):
            raise ValueError(
                f"num_hidden_groups {config.num_hidden_groups} and inner_group_num "
                f"{config.inner_group_num}: only ALBERT models in which all layers share one set "
                "of weights are supported, with 1 for both"
            )
        self.encoder = encoder

    @property
    def depth(self) -> int:
        depth: int = self.encoder.config.num_hidden_layers
        return depth

    @property
    def max_tokens(self) -> int:
        return self.encoder.config.max_position_embeddings

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        embedded = self.encoder.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        return self.encoder.encoder.embedding_hidden_mapping_in(embedded)

    def layer(self, index: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        bias = additive_mask(attention_mask, hidden.dtype)
        return self.encoder.encoder.albert_layer_groups[0](hidden, bias)

    def read(self, hidden: Tensor) -> Tensor:
        return hidden
