"""A checkpoint's folder before its format is known: config and weights."""

from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

from models.checkpoints.label_names import label_names
from models.checkpoints.weights import Weights
from models.encoders.families import FAMILIES
from models.encoders.stated_config import stated_config
from models.errors import UnusableCheckpoint, in_one_line
from models.model_files import CONFIG
from models.weight_files import read_weights
from serve.rules.traits import Task

# Config keys that matter here, besides those that the config's class lists.
_LABEL_KEYS = {"id2label", "label2id", "num_labels", "problem_type", "pad_token_id"}


class RawCheckpoint:
    """Config and weights of a folder.

    Attributes:
        folder: the folder.
        last_ramp: whether DeeBERT's last ramp is to become an exit.
        config: content of `config.json`.
        labels: label names by id.
        weights: all weights that no format has taken yet.
    """

    def __init__(self, folder: Path, last_ramp: bool = False) -> None:
        """Read the folder.

        Raises:
            UnusableCheckpoint: config or weights are missing or cannot be read.
        """
        self.folder = folder
        self.last_ramp = last_ramp
        self.config = stated_config(folder)
        self.labels = label_names(self.config, folder)
        self.weights = Weights(read_weights(folder))

    @property
    def architectures(self) -> list[str]:
        """The names of the saved classes. They can be wrong."""
        stated = self.config.get("architectures") or []
        return list(map(str, stated)) if isinstance(stated, list) else [str(stated)]

    @property
    def architecture(self) -> str:
        """The name of the first saved class; empty if unknown."""
        return next(iter(self.architectures), "")

    @property
    def task(self) -> Task:
        """The task of a text classifier, decided as transformers does."""
        if len(self.labels) == 1:
            return "regression"
        several = self.config.get("problem_type") == "multi_label_classification"
        return "multi_label" if several else "single_label"

    def settings(self, *keys: str) -> dict[str, Any]:
        """Return those of these keys that the config has a value for."""
        return {key: self.config[key] for key in keys if self.config.get(key) is not None}

    def encoder_config(self, family: str) -> PreTrainedConfig:
        """Return the encoder's config.

        Args:
            family: transformers' model type.

        Raises:
            UnusableCheckpoint: the family is not supported, or the config does not fit it.
        """
        if family not in FAMILIES:
            raise UnusableCheckpoint(f"{self.folder}: {unsupported(family)}")
        kind = CONFIG_MAPPING[family]
        of_class = {*kind().to_dict(), *kind.attribute_map}
        known = of_class | _LABEL_KEYS | FAMILIES[family].settings
        stated = {k: v for k, v in self.config.items() if k in known}
        labels = dict(enumerate(self.labels))
        stated |= {"id2label": labels, "label2id": {name: i for i, name in labels.items()}}
        for key in ("num_labels", "model_type", "architectures", "dtype", "torch_dtype"):
            stated.pop(key, None)
        try:
            return kind.from_dict(stated)
        except Exception as error:  # transformers' checks raise no narrower type
            raise UnusableCheckpoint(f"{self.folder}/{CONFIG}: {in_one_line(error)}") from error


def unsupported(family: object) -> str:
    """Return what is said of a model type that is none of the supported ones."""
    return f"encoders of type {family!r} are not supported, only {', '.join(FAMILIES)}"
