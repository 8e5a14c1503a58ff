"""A transformer encoder with an exit head after some of its layers.

Stored as a transformers-style folder: `config.json` is the encoder's own config with one
extra key, `offramp`, that describes the exits; `model.safetensors` holds the encoder under
its usual prefix (so `AutoModel.from_pretrained` reads it too) and the heads under `exits.`.
"""

from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from models.backbone import Backbone
from models.families import adapt, build_encoder, read_encoder
from serve.traits import Task, Traits

# `tokens`: no pooling, every token gets logits of its own.
Pooling = Literal["first", "mean", "tokens"]


class HeadConfig(BaseModel):
    """Shape of every exit head: pooling, optional tanh pooler, linear classifier."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pooling: Pooling = "mean"
    pooler: bool = True
    dropout: float = 0.1


class ExitConfig(BaseModel):
    """The `offramp` key of `config.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exits: tuple[int, ...]
    task: Task = "single_label"
    head: HeadConfig = HeadConfig()


class ExitHead(nn.Module):
    """Pool the tokens, optionally transform with Linear and tanh, classify."""

    def __init__(self, width: int, num_labels: int, config: HeadConfig) -> None:
        super().__init__()
        self.pooling = config.pooling
        self.dropout = nn.Dropout(config.dropout)
        self.pooler = nn.Linear(width, width) if config.pooler else None
        self.classifier = nn.Linear(width, num_labels)

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Return (rows, labels) logits for (rows, tokens, width) hidden states.

        Without pooling, (rows, tokens, labels).
        """
        return self.classify(self.pool(hidden, attention_mask))

    def pool(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Return (rows, width): the part without weights, the same for all heads of a model."""
        if self.pooling == "tokens":
            return hidden
        return hidden[:, 0] if self.pooling == "first" else masked_mean(hidden, attention_mask)

    def classify(self, pooled: Tensor) -> Tensor:
        """Return (rows, labels) logits for (rows, width)."""
        if self.pooler is not None:
            pooled = torch.tanh(self.pooler(pooled))
        return self.classifier(self.dropout(pooled))


def masked_mean(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    """Return (rows, width): the mean over the tokens whose mask is 1.

    A product rather than a masked sum: exported, the sum runs in another order for one row
    than for several, and no bit of an answer may depend on how many rows run together.
    """
    weights = attention_mask[:, None, :].to(hidden.dtype)  # (rows, 1, tokens)
    return (weights @ hidden).squeeze(1) / weights.sum(dim=2).clamp(min=1)


class MultiExitModel(nn.Module):
    """An encoder and its exit heads.

    Attributes:
        config: the encoder's config, with `id2label`.
        exits: exit layers, counted from 1, ascending; the last is the encoder's depth.
        heads: one `ExitHead` per exit, in that order.
    """

    def __init__(self, encoder: PreTrainedModel, exit_config: ExitConfig) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config
        self.exit_config = exit_config
        self.exits = exit_config.exits
        self.backbone: Backbone = adapt(encoder)
        _check_exits(self.exits, self.backbone.depth)
        width, labels = encoder.config.hidden_size, encoder.config.num_labels
        self.heads = nn.ModuleList(ExitHead(width, labels, exit_config.head) for _ in self.exits)

    @property
    def labels(self) -> list[str]:
        """Label names by id."""
        return [self.config.id2label[i] for i in range(self.config.num_labels)]

    @property
    def traits(self) -> Traits:
        """The model as its exit rules see it."""
        return Traits(self.exits, tuple(self.labels), self.exit_config.task)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> list[Tensor]:
        """Return one (rows, labels) tensor of logits per exit.

        Args:
            input_ids: (rows, tokens).
            attention_mask: (rows, tokens), 1 for real tokens, 0 for padding.
            token_type_ids: (rows, tokens), or None for a single text.
        """
        hidden = self.backbone.embed(input_ids, token_type_ids, attention_mask)
        logits: list[Tensor] = []
        for index in range(self.exits[-1]):
            hidden = self.backbone.layer(index, hidden, attention_mask)
            if index + 1 in self.exits:
                read = self.backbone.read(hidden)
                logits.append(self.heads[len(logits)](read, attention_mask))
        return logits

    @classmethod
    def from_encoder(
        cls,
        folder: str | Path,
        labels: list[str],
        exits: tuple[int, ...] | None = None,
        head: HeadConfig | None = None,
    ) -> "MultiExitModel":
        """Put fresh heads on a pretrained encoder.

        Args:
            folder: a transformers encoder's folder.
            labels: label names by id.
            exits: exit layers, counted from 1; None puts a head after every layer.
            head: shape of the heads.
        """
        encoder = read_encoder(folder, labels)
        depth = adapt(encoder).depth
        exit_config = ExitConfig(
            exits=exits or tuple(range(1, depth + 1)), head=head or HeadConfig()
        )
        return cls(encoder, exit_config)

    @classmethod
    def load(cls, folder: str | Path) -> "MultiExitModel":
        """Load a folder written by `save`, in float32 and evaluation mode.

        Raises:
            ValueError: the folder holds no multi-exit model, or weights do not fit it.
        """
        folder = Path(folder)
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} holds no model: config.json is missing")
        config = AutoConfig.from_pretrained(folder)
        described = getattr(config, "offramp", None)
        if described is None:
            raise ValueError(f"{folder} is no multi-exit model: config.json has no 'offramp' key")
        model = cls(build_encoder(config), ExitConfig.model_validate(described))
        weights = load_file(folder / "model.safetensors")
        state = {model._from_stored(name): value for name, value in weights.items()}
        missing, unexpected = model.load_state_dict(state, strict=False)
        if missing or unexpected:
            raise ValueError(
                f"{folder}/model.safetensors does not fit its config.json: "
                f"missing {missing[:3]}, unexpected {unexpected[:3]}"
            )
        return model.eval()

    def save(self, folder: str | Path, dtype: torch.dtype = torch.float32) -> None:
        """Write `config.json` and `model.safetensors`, weights cast to `dtype`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        config = _with_exits(self.config, self.exit_config)
        config.save_pretrained(folder)
        weights = {
            self._to_stored(name): value.detach().to(dtype).contiguous()
            for name, value in self.state_dict().items()
        }
        path = folder / "model.safetensors"
        save_file(weights, path, metadata={"format": "pt"})
        # safetensors writes for the owner only; the server may be somebody else.
        path.chmod((folder / "config.json").stat().st_mode)

    def _to_stored(self, name: str) -> str:
        part, _, rest = name.partition(".")
        return f"{self._prefix(part)}.{rest}"

    def _from_stored(self, name: str) -> str:
        part, _, rest = name.partition(".")
        stored = {self._prefix(part): part for part in ("encoder", "heads")}
        return f"{stored.get(part, part)}.{rest}"

    def _prefix(self, part: str) -> str:
        return {"encoder": self.encoder.base_model_prefix, "heads": "exits"}[part]


def _with_exits(config: PreTrainedConfig, exit_config: ExitConfig) -> PreTrainedConfig:
    config = type(config).from_dict(config.to_dict())
    config.offramp = exit_config.model_dump(mode="json")
    return config


def _check_exits(exits: tuple[int, ...], depth: int) -> None:
    if list(exits) != sorted(set(exits)) or not exits or exits[0] < 1:
        raise ValueError(f"exits {exits} must be ascending layers counted from 1")
    if exits[-1] != depth:
        raise ValueError(f"the last exit must be the last layer, {depth}, not {exits[-1]}")
