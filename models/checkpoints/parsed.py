"""The result of reading a checkpoint: its description and its renamed weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError
from torch import Tensor
from transformers import PreTrainedConfig

from models.checkpoints.weights import DroppedWeights
from models.encoders.first_layers import cut_config, layer_of
from models.errors import UnusableCheckpoint
from models.multi_exit import ExitConfig
from serve.errors import InvalidRule
from serve.rules import EXIT_RULE, ExitRule


@dataclass(frozen=True)
class CheckpointInfo:
    """Description of a checkpoint, from its keys and its config.

    Attributes:
        format: the system that wrote it.
        family: transformers' model type of the encoder.
        labels: label names by id.
        depth: number of transformer layers.
        exits: positions and shape of the heads, and the task.
        rule: the exit rule that the checkpoint's settings state; None if they state none.
        rule_hint: how to ask the server for the original's rule.
        settings: the config's settings of rule and training.
        value_is_logit: whether transformers' pipeline gives the sigmoid of a regression's value.
        dropped: weights that are not used.
        notes: remarks for the user.
    """

    format: str
    family: str
    labels: tuple[str, ...]
    depth: int
    exits: ExitConfig
    rule: ExitRule | None = None
    rule_hint: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    value_is_logit: bool = False
    dropped: tuple[DroppedWeights, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ParsedCheckpoint:
    """A checkpoint with its weights under the names of `MultiExitModel`.

    Attributes:
        info: description of the checkpoint.
        config: the encoder's config.
        encoder: the encoder's weights, without its prefix.
        heads: the heads' weights, one mapping per exit.
    """

    info: CheckpointInfo
    config: PreTrainedConfig
    encoder: Mapping[str, Tensor]
    heads: tuple[Mapping[str, Tensor], ...]

    def cut(self, layers: int) -> "ParsedCheckpoint":
        """Return the first layers and their exits; the last layer kept must be an exit.

        In a model with a single exit, the head moves to the last layer kept.

        Raises:
            UnusableCheckpoint: the model has fewer layers, or no exit after the last one kept.
        """
        info, exits = self.info, self.info.exits
        if not 1 <= layers <= info.depth:
            raise UnusableCheckpoint(f"--layers {layers}: the model has {info.depth} layers")
        if exits.second_head and layers < info.depth:
            raise UnusableCheckpoint("--layers and --last-ramp exclude each other: take one")
        if layers == info.depth:
            return self
        kept = tuple(layer for layer in exits.exits if layer <= layers)
        heads, last_head = self.heads[: len(kept)], None
        if len(exits.exits) == 1:
            kept, heads, last_head = (layers,), self.heads, exits.last_head
        if not kept or kept[-1] != layers:
            listed = ", ".join(map(str, exits.exits))
            raise UnusableCheckpoint(
                f"--layers {layers}: there is no exit after that layer to answer; "
                f"the model has exits at {listed}"
            )
        shorter = replace(
            info,
            depth=layers,
            exits=exits.model_copy(update={"exits": kept, "last_head": last_head}),
            notes=(*info.notes, f"cut to the first {layers} of {info.depth} layers"),
        )
        return ParsedCheckpoint(
            info=shorter,
            config=cut_config(self.config, layers),
            encoder={
                n: each
                for n, each in self.encoder.items()
                if not layers <= layer_of(n) < info.depth
            },
            heads=heads,
        )


def stated_rule(**settings: Any) -> ExitRule | None:
    """Return the exit rule with these settings; None if one is missing or turns the rule off.

    The original systems write "off" in their own ways, such as threshold -1 or patience 0.
    """
    if any(value is None for value in settings.values()):
        return None
    try:
        return EXIT_RULE.validate_python(settings)
    except (ValidationError, InvalidRule):
        return None
