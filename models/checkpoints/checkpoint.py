"""A checkpoint's folder: its config and its weights, before anybody knows what they are."""

import json
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.weights import Weights, read_weights
from models.encoders.families import FAMILIES
from serve.rules.traits import Task

CONFIG = "config.json"
# Besides what its class lists, what a config may say that matters here.
_LABEL_KEYS = {"id2label", "label2id", "num_labels", "problem_type", "pad_token_id"}


class RawCheckpoint:
    """What lies in the folder.

    Attributes:
        folder: where.
        config: `config.json` as it is.
        weights: to be taken from.
    """

    def __init__(self, folder: Path) -> None:
        """Read the folder.

        Raises:
            UnusableCheckpoint: it holds no config or no weights, or they cannot be read.
        """
        self.folder = folder
        self.config = _read_config(folder)
        self.weights = Weights(read_weights(folder))

    @property
    def architecture(self) -> str:
        """The class name it was saved from; empty if unknown. Never to be trusted alone."""
        return str((self.config.get("architectures") or [""])[0])

    @property
    def task(self) -> Task:
        """How the logits of a classifier of whole texts are read, as transformers decides it."""
        if self.config.get("problem_type") == "multi_label_classification":
            return "multi_label"
        return "regression" if len(self.labels) == 1 else "single_label"

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names by id, as the config has them; LABEL_0, LABEL_1, ... where it has none."""
        named = self.config.get("id2label") or {}
        count = self.config.get("num_labels") or len(named) or 2
        if len(named) == count:
            return tuple(str(named[key]) for key in sorted(named, key=int))
        return tuple(f"LABEL_{i}" for i in range(count))

    def encoder_config(self, family: str, **changes: Any) -> PreTrainedConfig:
        """Return the encoder's config, for the family that the keys have shown.

        Args:
            family: transformers' model type.
            changes: what to put in the place of what the file says.

        Raises:
            UnusableCheckpoint: Offramp has no such family, heads were pruned, or the config is
                not one of the family.
        """
        if family not in FAMILIES:
            listed = ", ".join(FAMILIES)
            raise UnusableCheckpoint(
                f"{self.folder}: encoders of type {family!r} are not supported, only {listed}"
            )
        if self.config.get("pruned_heads"):
            raise UnusableCheckpoint(f"{self.folder}: models with pruned heads are not supported")
        kind = CONFIG_MAPPING[family]
        of_class = {*kind().to_dict(), *kind.attribute_map}
        known = of_class | _LABEL_KEYS | FAMILIES[family].settings
        stated = {k: v for k, v in self.config.items() if k in known} | changes
        labels = dict(enumerate(self.labels))
        stated |= {"id2label": labels, "label2id": {name: i for i, name in labels.items()}}
        for key in ("num_labels", "model_type", "architectures", "dtype", "torch_dtype"):
            stated.pop(key, None)
        try:
            return kind.from_dict(stated)
        except (TypeError, ValueError) as error:
            raise UnusableCheckpoint(f"{self.folder}/{CONFIG}: {error}") from error


def _read_config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise UnusableCheckpoint(f"{folder}: no such folder")
    path = folder / CONFIG
    if not path.is_file():
        raise UnusableCheckpoint(f"{folder} holds no model: {CONFIG} is missing")
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise UnusableCheckpoint(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise UnusableCheckpoint(f"{path}: expected a JSON object")
    return config
