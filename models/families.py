"""The encoder families that can be given exits. A further one is an adapter and a line here."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from transformers import AlbertModel, AutoConfig, BertModel, PreTrainedConfig, PreTrainedModel

from models.albert import AlbertBackbone
from models.backbone import Backbone
from models.bert import BertBackbone


class Family(NamedTuple):
    """A transformers model class, and the adapter that takes its encoder apart."""

    encoder: type[PreTrainedModel]
    adapter: Callable[[PreTrainedModel], Backbone]


# By transformers' model type.
FAMILIES: dict[str, Family] = {
    "albert": Family(AlbertModel, AlbertBackbone),
    "bert": Family(BertModel, BertBackbone),
}


def family_of(config: PreTrainedConfig) -> Family:
    """Return the family of an encoder.

    Raises:
        ValueError: it is not supported; names those that are.
    """
    family = FAMILIES.get(config.model_type)
    if family is None:
        raise ValueError(
            f"model type {config.model_type!r} is not supported: use one of {', '.join(FAMILIES)}"
        )
    return family


def build_encoder(config: PreTrainedConfig) -> PreTrainedModel:
    """Return a randomly initialised encoder for the config, without its own pooler."""
    family = family_of(config)
    config._attn_implementation = "sdpa"
    return family.encoder(config, add_pooling_layer=False)


def read_encoder(folder: str | Path, labels: list[str]) -> PreTrainedModel:
    """Return a pretrained encoder, without its own pooler, that knows these labels."""
    config = AutoConfig.from_pretrained(folder)
    family = family_of(config)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: i for i, label in enumerate(labels)}
    return family.encoder.from_pretrained(folder, config=config, add_pooling_layer=False)


def adapt(encoder: PreTrainedModel) -> Backbone:
    """Return the adapter for an encoder."""
    return family_of(encoder.config).adapter(encoder)
