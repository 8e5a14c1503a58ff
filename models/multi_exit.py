"""A transformer encoder with an exit head after some of its layers.

The model is stored as a transformers-style folder. `config.json` is the encoder's config with one
more key, `offramp`, that describes the exits. `model.safetensors` holds the encoder under its usual
prefix, so `AutoModel.from_pretrained` reads it too, and the heads under `exits.`.
"""

from pathlib import Path
from typing import cast

import torch
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from models.encoder_with_heads import EncoderWithHeads
from models.encoders.backbone import Backbone
from models.encoders.families import build_backbone, build_encoder, read_config, read_encoder
from models.encoders.meta import check_shapes, without_memory
from models.encoders.unbiased_norm import replace_norms
from models.errors import UnusableCheckpoint
from models.heads import (
    AnyHead,
    AnyHeadConfig,
    ExitHead,
    HeadConfig,
    HeadOutput,
    Pooling,
    build_head,
)
from models.weight_files import read_shapes, read_weights
from serve.rules.traits import Task, Traits
from serve.validation import explain

__all__ = ["ExitConfig", "ExitHead", "HeadConfig", "MultiExitModel", "Pooling"]


class ExitConfig(BaseModel):
    """The `offramp` key of `config.json`.

    Attributes:
        exits: exit layers, counted from 1, ascending; the last is the encoder's depth.
        task: what the logits mean.
        head: shape of the heads.
        last_head: shape of the last exit's head, if it has another: the head of the classifier that
            the model was before it had exits.
        unbiased_norm: whether the encoder uses the UER toolkit's layer norms (FastBERT).
        second_head: whether the last layer has two heads, as in DeeBERT. The second one is then
            an exit numbered one beyond the depth, and no layer runs for it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    exits: tuple[int, ...]
    task: Task = "single_label"
    head: AnyHeadConfig = HeadConfig()
    last_head: AnyHeadConfig | None = None
    unbiased_norm: bool = False
    second_head: bool = False

    @model_validator(mode="after")
    def _check(self) -> "ExitConfig":
        for head in self.heads:
            if (head.pooling == "tokens") != (self.task == "token"):
                raise ValueError(
                    f"head.pooling is {head.pooling!r}, task {self.task!r}: "
                    "pooling 'tokens' and task 'token' need each other"
                )
        if len({head.uncertainty is None for head in self.heads}) > 1:
            raise ValueError("head and last_head differ in whether they predict their error")
        return self

    @property
    def heads(self) -> tuple[AnyHeadConfig, ...]:
        """The shape of every exit's head, first to last."""
        return (*[self.head] * (len(self.exits) - 1), self.last_head or self.head)


class MultiExitModel(EncoderWithHeads):
    """An encoder and its exit heads.

    Attributes:
        config: the encoder's config, with `id2label`.
        exits: exit layers, counted from 1, ascending; the last is the encoder's depth.
        heads: one per exit, in that order.
    """

    encoder: PreTrainedModel

    def __init__(self, encoder: PreTrainedModel, exit_config: ExitConfig) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config
        self.exit_config = exit_config
        self.exits = exit_config.exits
        if exit_config.unbiased_norm:
            replace_norms(encoder)
        self.backbone: Backbone = build_backbone(encoder)
        check_exits(self.exits, self.backbone.depth + exit_config.second_head)
        width, labels = encoder.config.hidden_size, encoder.config.num_labels
        assert labels is not None  # two, where a config names none
        self.heads = nn.ModuleList(build_head(width, labels, head) for head in exit_config.heads)

    @property
    def labels(self) -> list[str]:
        """Label names by id."""
        # transformers converts the keys to integers.
        names = cast(dict[int, str], self.config.id2label)
        return [names[i] for i in range(len(names))]

    @property
    def traits(self) -> Traits:
        """The properties of the model against which exit rules are checked."""
        learned = self.exit_config.head.uncertainty is not None
        return Traits(self.exits, tuple(self.labels), self.exit_config.task, learned)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> list[Tensor]:
        """Return the logits of `exit_outputs`, one tensor per exit."""
        outputs = self.exit_outputs(input_ids, attention_mask, token_type_ids)
        return [output.logits for output in outputs]

    def exit_outputs(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> list[HeadOutput]:
        """Return the output of every head, first to last.

        Args:
            input_ids: (rows, tokens).
            attention_mask: (rows, tokens), 1 for real tokens, 0 for padding.
            token_type_ids: (rows, tokens), or None for a single text.
        """
        hidden = self.backbone.embed(input_ids, token_type_ids, attention_mask)
        outputs: list[HeadOutput] = []
        start = 0
        for index, stop in enumerate(self.exits):
            hidden = self.run_layers(hidden, attention_mask, start, stop)
            head_input = self.backbone.head_input(hidden)
            outputs.append(self.head(index).output(head_input, attention_mask))
            start = stop
        return outputs

    def run_layers(self, hidden: Tensor, attention_mask: Tensor, start: int, stop: int) -> Tensor:
        """Run the layers from `start`, counted from 0, up to before `stop`."""
        return self.backbone.run_layers(hidden, attention_mask, start, stop)

    def head(self, index: int) -> AnyHead:
        """Return the head of an exit, counted from 0."""
        head: AnyHead = self.heads[index]  # type: ignore[assignment]
        return head

    @classmethod
    def from_encoder(
        cls,
        folder: str | Path,
        labels: list[str],
        exits: tuple[int, ...] | None = None,
        head: AnyHeadConfig | None = None,
        task: Task = "single_label",
        layers: int | None = None,
    ) -> "MultiExitModel":
        """Add randomly initialised heads to a pretrained encoder.

        Args:
            folder: a transformers encoder's folder.
            labels: label names by id.
            exits: exit layers, counted from 1; None puts a head after every layer.
            head: shape of the heads; by default one that fits the task.
            task: what the logits mean.
            layers: keep only the encoder's first so many layers.
        """
        encoder = read_encoder(folder, labels, layers)
        exits = exits or tuple(range(1, build_backbone(encoder).depth + 1))
        return cls(encoder, ExitConfig(exits=exits, head=head or new_head(task), task=task))

    @classmethod
    def load(cls, folder: str | Path) -> "MultiExitModel":
        """Load a folder written by `save`, in float32 and evaluation mode.

        Raises:
            ValueError: the folder holds no multi-exit model.
            UnusableCheckpoint: it cannot be read, or its weights do not fit.
        """
        folder = Path(folder)
        config = read_config(folder)
        exits = getattr(config, "offramp", None)
        if exits is None:
            raise ValueError(f"{folder} is no multi-exit model: config.json has no 'offramp' key")
        try:
            exit_config = ExitConfig.model_validate(exits)
        except ValidationError as error:
            reason = f"offramp: {explain(error)}"
            raise UnusableCheckpoint(f"{folder}/config.json: {reason}") from None
        model = without_memory(lambda: cls(build_encoder(config), exit_config), config)
        shapes = {model._from_stored(name): shape for name, shape in read_shapes(folder).items()}
        check_shapes(model, shapes, f"{folder}/model.safetensors")
        model = cls(build_encoder(config), exit_config)
        weights = read_weights(folder)
        model.load_state_dict({model._from_stored(n): value for n, value in weights.items()})
        return model.eval()

    def save(self, folder: str | Path, dtype: torch.dtype = torch.float32) -> None:
        """Write `config.json` and `model.safetensors`, weights cast to `dtype`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        config = _with_exits(self.config, self.exit_config)
        config.dtype = dtype
        config.save_pretrained(folder)
        weights = {
            # Copied: heads may share a layer, and the file holds no weights that share memory.
            self._to_stored(name): value.detach().to(dtype, copy=True).contiguous()
            for name, value in self.state_dict().items()
        }
        path = folder / "model.safetensors"
        save_file(weights, path, metadata={"format": "pt"})
        # safetensors makes the file readable by its owner only; servers run as other users.
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


def new_head(task: Task) -> HeadConfig:
    """Return the shape of a head that is trained for a task from random numbers."""
    return HeadConfig(pooling="tokens", pooler=False) if task == "token" else HeadConfig()


def check_exits(exits: tuple[int, ...], depth: int) -> None:
    """Raise ValueError unless these are layers of the encoder, ascending up to its last one."""
    if list(exits) != sorted(set(exits)) or not exits or exits[0] < 1:
        raise ValueError(f"exits {exits} must be ascending layers counted from 1")
    if exits[-1] != depth:
        whole = ",".join(str(layer) for layer in (*exits, depth) if layer <= depth)
        raise ValueError(
            f"the last exit must be the last layer, {depth}, not {exits[-1]}: use {whole}"
        )
