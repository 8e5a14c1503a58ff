"""What a multi-exit model needs of a transformers encoder."""

from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel


class Backbone(Protocol):
    """An encoder taken apart: embeddings, then layers called one at a time.

    What padding gets is of no meaning, and what a real token gets is free of it: the same as
    if its text were alone.

    Attributes:
        has_token_types: whether `embed` uses token type ids.
        shared: whether all layers are one, run again and again.
    """

    has_token_types: bool
    shared: bool

    @property
    def encoder(self) -> PreTrainedModel:
        """What was taken apart."""
        ...

    @property
    def depth(self) -> int:
        """Number of transformer layers."""
        ...

    @property
    def max_tokens(self) -> int:
        """Longest text, special tokens included."""
        ...

    def embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor
    ) -> Tensor:
        """Return (rows, tokens, width) hidden states before layer 1 for (rows, tokens) ids."""
        ...

    def read(self, hidden: Tensor) -> Tensor:
        """Return what an exit head reads of (rows, tokens, width) hidden states.

        The states themselves, unless the encoder normalises what leaves it (ModernBERT).
        """
        ...

    def layer(self, index: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Run the layer with this index, counted from 0.

        Args:
            index: which layer.
            hidden: (rows, tokens, width).
            attention_mask: (rows, tokens), 1 for real tokens, 0 for padding, which is on the
                right.
        """
        ...


def additive_mask(attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return (rows, 1, 1, tokens): 0 where attended, the lowest finite number elsewhere."""
    return (1 - attention_mask[:, None, None, :].to(dtype)) * torch.finfo(dtype).min
