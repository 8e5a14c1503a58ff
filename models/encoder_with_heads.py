"""The common part of models that are trained: an encoder, and what reads its layers."""

from torch import nn
from transformers import PreTrainedConfig


class EncoderWithHeads(nn.Module):
    """An encoder and the heads that read it.

    Attributes:
        config: the encoder's config.
        encoder: learns at the learning rate of a run.
        heads: may learn faster.
    """

    config: PreTrainedConfig
    encoder: nn.Module
    heads: nn.ModuleList
