"""Exit heads: small classifiers on the hidden states after a layer.

One shape covers most of the literature: pool the tokens, optionally apply a dense layer with an
activation and a norm, then classify. FastBERT's head attends to all tokens instead.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict, Discriminator, PositiveInt, Tag
from torch import Tensor, nn
from torch.nn import functional

# `tokens`: no pooling, every token gets its own logits.
Pooling = Literal["first", "mean", "tokens"]
Activation = Literal["tanh", "relu", "gelu", "none"]

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "none": lambda hidden: hidden,
}


class HeadOutput(NamedTuple):
    """The output of one exit head.

    Attributes:
        logits: (rows, labels); for token classification (rows, tokens, labels).
        uncertainty: (rows,) from 0 to 1, the error that the head predicts for itself; None if the
            head was not trained to predict it.
    """

    logits: Tensor
    uncertainty: Tensor | None = None

    def float(self) -> "HeadOutput":
        """Return the output in float32, in which losses are computed."""
        uncertainty = None if self.uncertainty is None else self.uncertainty.float()
        return HeadOutput(self.logits.float(), uncertainty)


class HeadConfig(BaseModel):
    """Shape of every exit head: pooling, optional dense layer, linear classifier.

    Attributes:
        pooler: whether there is a dense layer between pooling and classifier.
        activation: after the dense layer: tanh (BERT, RoBERTa, ALBERT), relu (DistilBERT), gelu
            (ELECTRA, DeBERTa, ModernBERT), none.
        bias: whether the dense layer has a bias.
        norm: epsilon of a layer norm after the activation (ModernBERT); None for no norm.
        norm_bias: whether that norm has a bias.
        uncertainty: where the head reads the features from which it predicts its own error
            (BERxiT): after `pooler` or after `pooling`; None for no prediction.
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
    """Shape of FastBERT's head: projection, self-attention over the tokens, classifier.

    Attributes:
        width: width of every layer inside the head.
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
    """Return the kind of a described head; old folders name none and hold pooled heads."""
    kind = value.get("kind", "pooled") if isinstance(value, dict) else value.kind
    return str(kind)


AnyHeadConfig: TypeAlias = Annotated[
    Annotated[HeadConfig, Tag("pooled")] | Annotated[AttentionHeadConfig, Tag("attention")],
    Discriminator(_kind),
]


class ExitHead(nn.Module):
    """Pool the tokens, optionally transform with a dense layer, classify.

    `pool` has no weights and is the same for all heads of a model, so `pool` and `classify` can
    be called separately.
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
        return self.output(hidden, attention_mask).logits

    def pool(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Return (rows, width), or the hidden states unchanged if `pooling` is `tokens`."""
        if self.config.pooling == "tokens":
            return hidden
        if self.config.pooling == "first":
            return hidden[:, 0]
        return masked_mean(hidden, attention_mask)

    def classify(self, pooled: Tensor) -> HeadOutput:
        """Return the head's output for the result of `pool`."""
        features = self._features(pooled)
        logits = self.classifier(self.dropout(features))
        if self.uncertainty is None:
            return HeadOutput(logits)
        source = features if self.config.uncertainty == "pooler" else pooled
        return HeadOutput(logits, torch.sigmoid(self.uncertainty(source)).squeeze(-1))

    def output(self, hidden: Tensor, attention_mask: Tensor) -> HeadOutput:
        """Return the head's output for (rows, tokens, width) hidden states."""
        return self.classify(self.pool(hidden, attention_mask))

    def _features(self, pooled: Tensor) -> Tensor:
        if self.pooler is None:
            return pooled
        features = _ACTIVATIONS[self.config.activation](self.pooler(pooled))
        return features if self.norm is None else self.norm(features)


class AttentionHead(nn.Module):
    """FastBERT's student classifier (Liu et al. 2020).

    Only the first token's result is used, so attention is computed for its query only.
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

    def output(self, hidden: Tensor, attention_mask: Tensor) -> HeadOutput:
        """Return the head's output for (rows, tokens, width) hidden states."""
        return HeadOutput(self(hidden, attention_mask))

    def _split(self, narrow: Tensor) -> Tensor:
        """Return (rows, heads, tokens, width / heads) of (rows, tokens, width)."""
        return narrow.unflatten(-1, (self.config.num_heads, -1)).transpose(1, 2)


AnyHead: TypeAlias = ExitHead | AttentionHead


def build_head(width: int, num_labels: int, config: AnyHeadConfig) -> AnyHead:
    """Return a randomly initialised head for hidden states of this width."""
    if isinstance(config, AttentionHeadConfig):
        return AttentionHead(width, num_labels, config)
    return ExitHead(width, num_labels, config)


def masked_mean(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    """Return (rows, width): the mean over the tokens whose mask is 1.

    Computed as a product, not as a masked sum. An exported sum adds in another order for one row
    than for several, but an answer must not depend on how many rows run together.
    """
    weights = attention_mask[:, None, :].to(hidden.dtype)  # (rows, 1, tokens)
    return (weights @ hidden).squeeze(1) / weights.sum(dim=2).clamp(min=1)
