"""The common interface of all encoders: embeddings, then layers that run one at a time."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


class Backbone(ABC):
    """A transformers encoder whose layers can be run one at a time.

    A token's result never depends on padding: it is the same as if its text ran alone. Results
    at padded positions have no meaning.

    Attributes:
        encoder: the whole encoder.
        has_token_types: whether `embed` uses token type ids.
        shared: whether all layers are the same layer, run repeatedly.
        unplaced_id: id of the token for which transformers counts no position, if there is one.
    """

    encoder: PreTrainedModel
    has_token_types = False
    shared = False
    unplaced_id: int | None = None

    def __init__(self, encoder: PreTrainedModel) -> None:
        self.encoder = encoder

    @property
    @abstractmethod
    def layers(self) -> Sequence[nn.Module] | nn.ModuleList:
        """The transformer layers in order."""

    @property
    def depth(self) -> int:
        """Number of transformer layers."""
        return len(self.layers)

    @property
    def max_tokens(self) -> int:
        """Longest text, special tokens included."""
        limit: int = self.encoder.config.max_position_embeddings
        return limit

    @abstractmethod
    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        """Return (rows, tokens, width) hidden states before layer 1 for (rows, tokens) ids."""

    def layer(self, index: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Run one layer.

        Args:
            index: counted from 0.
            hidden: (rows, tokens, width).
            attention_mask: (rows, tokens), 1 for real tokens, 0 for padding on the right.
        """
        output: Tensor = self.layers[index](hidden, additive_mask(attention_mask, hidden.dtype))
        return output

    def run_layers(self, hidden: Tensor, attention_mask: Tensor, start: int, stop: int) -> Tensor:
        """Run the layers from `start`, counted from 0, up to before `stop`.

        `stop` may exceed the depth: no layer runs for the last layer's second head.
        """
        for index in range(start, min(stop, self.depth)):
            hidden = self.layer(index, hidden, attention_mask)
        return hidden

    def head_input(self, hidden: Tensor) -> Tensor:
        """Return (rows, tokens, width): the hidden states as an exit head reads them."""
        return hidden


def additive_mask(attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return (rows, 1, 1, tokens): 0 where attended, the lowest finite number elsewhere."""
    return (1 - attention_mask[:, None, None, :].to(dtype)) * torch.finfo(dtype).min
