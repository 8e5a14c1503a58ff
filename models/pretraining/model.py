"""What is pretrained: an encoder whose every exit names masked words and tells texts' order."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from models.data.alignment import IGNORED
from models.encoder_with_heads import EncoderWithHeads
from models.encoders.backbone import Backbone
from models.encoders.families import build_backbone
from models.heads import ExitHead, HeadConfig
from models.pretraining.language_model import WORD_HEADS
from models.pretraining.masking import MaskedBatch
from models.training.gradient_equilibrium import states_in_equilibrium


class Found(NamedTuple):
    """What an exit finds in a masked batch.

    Attributes:
        words: (chosen, vocabulary) logits of the hidden tokens.
        targets: (chosen,) their ids.
        order: (rows, 2) logits of the texts' order; None where the order is not learned.
    """

    words: Tensor
    targets: Tensor
    order: Tensor | None

    def float(self) -> "Found":
        """Return it in float32, in which losses are computed."""
        order = None if self.order is None else self.order.float()
        return Found(self.words.float(), self.targets, order)


class PretrainingModel(EncoderWithHeads):
    """A masked language model whose word head reads every exit.

    Attributes:
        encoder: transformers' masked language model: the encoder and its word head.
        heads: for each exit, the head that tells whether two texts have changed places; none where
            the order is not learned.
        backbone: the encoder's layers.
        exits: exit layers, counted from 1, ascending; the last is the encoder's depth.
    """

    encoder: PreTrainedModel

    def __init__(self, model: PreTrainedModel, exits: tuple[int, ...], ordered: bool) -> None:
        super().__init__()
        self.config = model.config
        self.encoder = model
        self.backbone: Backbone = build_backbone(cast(PreTrainedModel, model.base_model))
        self.exits = exits
        # As ElasticBERT's: a pooler of its own for every exit.
        shape, width = HeadConfig(pooling="first"), self.config.hidden_size
        self.heads = nn.ModuleList(ExitHead(width, 2, shape) for _ in exits if ordered)

    def forward(self, masked: MaskedBatch, exits: Sequence[int] | None = None) -> list[Found]:
        """Return what these exits find, in gradient equilibrium; None stands for all exits."""
        return list(self.found(masked, exits or self.exits))

    def found(self, masked: MaskedBatch, exits: Sequence[int]) -> Iterator[Found]:
        """Yield what each of these exits finds, so that not all need memory at once."""
        batch, name_words = masked.batch, WORD_HEADS[self.config.model_type]
        states = states_in_equilibrium(self.backbone, exits, batch)
        for layer, hidden in zip(exits, states, strict=True):
            words = name_words(self.encoder, hidden[masked.chosen])
            order = None
            if self.heads:
                order = self.heads[self.exits.index(layer)](hidden, batch.attention_mask)
            yield Found(words, masked.targets, order)


def sum_of_exits(found: Sequence[Found], order: Tensor) -> Tensor:
    """Return the sum over exits of masked words' and texts' order's cross-entropy.

    Args:
        found: by each exit, in float32.
        order: (rows,) 0, 1 where two texts have changed places, `IGNORED` where there is one.
    """
    losses = [_mean(each.words, each.targets) for each in found]
    losses += [_mean(each.order, order) for each in found if each.order is not None]
    return torch.stack(losses).sum()


def _mean(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy; of nothing it is 0."""
    total = functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    return total / (targets != IGNORED).sum().clamp(min=1)
