"""Exit heads: what is read of the hidden states after a layer, and what is said of it.

One shape of head covers most of the literature: pool the tokens, optionally a dense layer with an
activation and a norm, a linear classifier. FastBERT's head attends to all tokens instead.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict, Discriminator, PositiveInt, Tag
from torch import Tensor, nn
from torch.nn import functional

# `tokens`: no pooling, every token gets logits of its own.
Pooling = Literal["first", "mean", "tokens"]
Activation = Literal["tanh", "relu", "gelu", "none"]

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "none": lambda hidden: hidden,
}


class HeadOutput(NamedTuple):
    """What a head says.

    Attributes:
        logits: (rows, labels); of token classification (rows, tokens, labels).
        uncertainty: (rows,) from 0 to 1, the head's own predicted error, if it has learned it.
    """

    logits: Tensor
    uncertainty: Tensor | None = None


class HeadConfig(BaseModel):
    """Shape of every exit head: pooling, optional dense layer, linear classifier.

    Attributes:
        pooler: whether there is a dense layer between pooling and classifier.
        activation: after the dense layer: tanh (BERT, RoBERTa, ALBERT), relu (DistilBERT), gelu
            (ELECTRA, DeBERTa, ModernBERT), none.
        bias: whether the dense layer has one.
        norm: epsilon of a layer norm after the activation (ModernBERT); None for no norm.
        norm_bias: whether that norm has one.
        uncertainty: what the head predicts its own error from (BERxiT): what `pooler` gives, or
            what `pooling` gives; None if it does not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["pooled"] = "pooled"
    pooling: Pooling = "mean"
    pooler: bool = True
    activation: Activation = "tanh"
    bias: bool = True
    norm: float | None = None
    norm_bias: bool = True
    uncertainty: Literal["pooler", "pooling"] | None = None
    dropout: float = 0.1


class AttentionHeadConfig(BaseModel):
    """FastBERT's head: narrow, self-attention over the tokens, the first one's outcome.

    Attributes:
        width: of everything inside the head.
        num_heads: attention heads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["attention"]
    width: PositiveInt = 128
    num_heads: PositiveInt = 2
    dropout: float = 0.1

    pooling: Literal["first"] = "first"
    uncertainty: None = None


def _kind(value: Any) -> str:
    """Tell which kind of head is described; a folder that names none is older than the kinds."""
    kind = value.get("kind", "pooled") if isinstance(value, dict) else value.kind
    return str(kind)


AnyHeadConfig: TypeAlias = Annotated[
    Annotated[HeadConfig, Tag("pooled")] | Annotated[AttentionHeadConfig, Tag("attention")],
    Discriminator(_kind),
]


class ExitHead(nn.Module):
    """Pool the tokens, optionally transform with a dense layer, classify.

    `pool`, without weights, and `say`, the rest, may be called apart: all heads of a model pool
    the same way.
    """

    def __init__(self, width: int, num_labels: int, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        self.dropout = nn.Dropout(config.dropout)
        self.pooler = nn.Linear(width, width, bias=config.bias) if config.pooler else None
        self.norm = (
            nn.LayerNorm(width, eps=config.norm, bias=config.norm_bias)
            if config.norm is not None
            else None
        )
        self.classifier = nn.Linear(width, num_labels)
        self.uncertainty = nn.Linear(width, 1) if config.uncertainty else None

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Return (rows, labels) logits for (rows, tokens, width) hidden states.

        Without pooling, (rows, tokens, labels).
        """
        return self.say(self.pool(hidden, attention_mask)).logits

    def pool(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Return (rows, width), or the hidden states themselves where nothing is pooled."""
        if self.config.pooling == "tokens":
            return hidden
        if self.config.pooling == "first":
            return hidden[:, 0]
        return masked_mean(hidden, attention_mask)

    def say(self, pooled: Tensor) -> HeadOutput:
        """Return logits, and the predicted error if the head has one, of what `pool` gave."""
        features = self._features(pooled)
        logits = self.classifier(self.dropout(features))
        if self.uncertainty is None:
            return HeadOutput(logits)
        read = features if self.config.uncertainty == "pooler" else pooled
        return HeadOutput(logits, torch.sigmoid(self.uncertainty(read)).squeeze(-1))

    def hear(self, hidden: Tensor, attention_mask: Tensor) -> HeadOutput:
        """Return all that the head says of (rows, tokens, width) hidden states."""
        return self.say(self.pool(hidden, attention_mask))

    def _features(self, pooled: Tensor) -> Tensor:
        if self.pooler is None:
            return pooled
        features = _ACTIVATIONS[self.config.activation](self.pooler(pooled))
        return features if self.norm is None else self.norm(features)


class AttentionHead(nn.Module):
    """FastBERT's student classifier (Liu et al. 2020).

    Only the first token's outcome is read, so only its query is asked.
    """

    def __init__(self, width: int, num_labels: int, config: AttentionHeadConfig) -> None:
        super().__init__()
        self.config = config
        self.narrow = nn.Linear(width, config.width)
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.value = nn.Linear(config.width, config.width)
        self.context = nn.Linear(config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.pooler = nn.Linear(config.width, config.width)
        self.classifier = nn.Linear(config.width, num_labels)

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Return (rows, labels) logits for (rows, tokens, width) hidden states."""
        narrow = torch.tanh(self.narrow(hidden))
        query = self._split(self.query(narrow[:, :1]))  # (rows, heads, 1, width / heads)
        key, value = self._split(self.key(narrow)), self._split(self.value(narrow))
        masked = (1 - attention_mask[:, None, None, :].to(hidden.dtype)) * -1e4
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + masked
        attended = self.dropout(scores.softmax(-1)) @ value
        context = self.context(attended.transpose(1, 2).flatten(2)).squeeze(1)
        return self.classifier(torch.tanh(self.pooler(context)))

    def hear(self, hidden: Tensor, attention_mask: Tensor) -> HeadOutput:
        """Return what the head says of (rows, tokens, width) hidden states."""
        return HeadOutput(self(hidden, attention_mask))

    def _split(self, narrow: Tensor) -> Tensor:
        """Return (rows, heads, tokens, width / heads) of (rows, tokens, width)."""
        return narrow.unflatten(-1, (self.config.num_heads, -1)).transpose(1, 2)


AnyHead: TypeAlias = ExitHead | AttentionHead


def build_head(width: int, num_labels: int, config: AnyHeadConfig) -> AnyHead:
    """Return a fresh head that reads hidden states of this width."""
    if isinstance(config, AttentionHeadConfig):
        return AttentionHead(width, num_labels, config)
    return ExitHead(width, num_labels, config)


def masked_mean(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    """Return (rows, width): the mean over the tokens whose mask is 1.

    A product rather than a masked sum: exported, the sum runs in another order for one row
    than for several, and no bit of an answer may depend on how many rows run together.
    """
    weights = attention_mask[:, None, :].to(hidden.dtype)  # (rows, 1, tokens)
    return (weights @ hidden).squeeze(1) / weights.sum(dim=2).clamp(min=1)
