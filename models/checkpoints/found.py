"""What a checkpoint turns out to be."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor
from transformers import PreTrainedConfig

from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.weights import Dropped
from models.multi_exit import ExitConfig
from serve.rules import ExitRule


@dataclass(frozen=True)
class Found:
    """A checkpoint as its keys and its config describe it.

    Attributes:
        format: the system it comes from.
        family: transformers' model type of the encoder.
        labels: label names by id.
        depth: transformer layers.
        exits: where heads are, what they look like, how their logits are read.
        rule: the exit rule with the settings that the checkpoint states; None if it states none.
        asked_for: how to ask the server for the original's rule.
        settings: what the checkpoint's config says of its rule and training.
        dropped: weights that are not used.
        notes: what else a user should know.
    """

    format: str
    family: str
    labels: tuple[str, ...]
    depth: int
    exits: ExitConfig
    rule: ExitRule | None = None
    asked_for: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """A checkpoint taken apart, its weights under the names of `MultiExitModel`.

    Attributes:
        found: what it is.
        config: of the encoder.
        encoder: its weights, without the encoder's prefix.
        heads: the heads' weights, one mapping per exit.
    """

    found: Found
    config: PreTrainedConfig
    encoder: Mapping[str, Tensor]
    heads: tuple[Mapping[str, Tensor], ...]

    def cut(self, layers: int) -> "Reading":
        """Return the first layers only, and the exits among them; the last must be an exit.

        A model with one exit is a plain classifier, whose head moves to the last layer kept.

        Raises:
            UnusableCheckpoint: there are not so many layers, or no exit after the last one kept.
        """
        found, exits = self.found, self.found.exits
        if not 1 <= layers <= found.depth:
            raise UnusableCheckpoint(f"--layers {layers}: the model has {found.depth} layers")
        if exits.second_head and layers < found.depth:
            raise UnusableCheckpoint("--layers and --last-ramp exclude each other: take one")
        if layers == found.depth:
            return self
        kept = tuple(layer for layer in exits.exits if layer <= layers)
        heads = self.heads[: len(kept)]
        if len(exits.exits) == 1:
            kept, heads = (layers,), self.heads
        if not kept or kept[-1] != layers:
            listed = ", ".join(map(str, exits.exits))
            raise UnusableCheckpoint(
                f"--layers {layers}: there is no exit after that layer to answer; "
                f"the model has exits at {listed}"
            )
        note = f"cut to the first {layers} of {found.depth} layers"
        shorter = replace(
            found,
            depth=layers,
            exits=exits.model_copy(update={"exits": kept}),
            notes=(*found.notes, note),
        )
        return replace(self, found=shorter, config=_cut_config(self.config, layers), heads=heads)


def _cut_config(config: PreTrainedConfig, layers: int) -> PreTrainedConfig:
    config = type(config).from_dict(config.to_dict())
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    return config
