"""The supported encoder families. A further family is a backbone class and a line here."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from transformers import (
    AlbertModel,
    AutoConfig,
    BertModel,
    DebertaV2Model,
    DistilBertModel,
    ElectraModel,
    MobileBertModel,
    ModernBertModel,
    MPNetModel,
    PreTrainedConfig,
    PreTrainedModel,
    RobertaModel,
    XLMRobertaModel,
)
from transformers.utils import logging as messages

from models.encoders.albert import AlbertBackbone
from models.encoders.backbone import Backbone
from models.encoders.bert import BertBackbone
from models.encoders.deberta import DebertaBackbone
from models.encoders.distilbert import DistilBertBackbone
from models.encoders.electra import ElectraBackbone
from models.encoders.mobilebert import MobileBertBackbone
from models.encoders.modernbert import ModernBertBackbone
from models.encoders.mpnet import MPNetBackbone
from models.encoders.roberta import RobertaBackbone

_NO_POOLER = {"add_pooling_layer": False}
_DEBERTA_SETTINGS = frozenset(
    {
        "attention_head_size",
        "conv_act",
        "conv_groups",
        "conv_kernel_size",
        "embedding_size",
        "norm_rel_ebd",
        "position_buckets",
        "share_att_key",
    }
)
# Names of these settings before transformers 5.
_MODERNBERT_SETTINGS = frozenset(
    {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}
)


class Family(NamedTuple):
    """A transformers model class and its backbone class.

    Attributes:
        encoder: the transformers class.
        backbone: builds the common interface around an encoder of that class.
        options: constructor arguments that leave out the encoder's own pooler.
        settings: keys of config.json that matter, though the config class does not list them.
    """

    encoder: type[PreTrainedModel]
    backbone: Callable[[Any], Backbone]
    options: dict[str, Any]
    settings: frozenset[str] = frozenset()


# By transformers' model type. MiniLM and ElasticBERT have BERT's modules, so both are `bert`.
FAMILIES: dict[str, Family] = {
    "albert": Family(AlbertModel, AlbertBackbone, _NO_POOLER),
    "bert": Family(BertModel, BertBackbone, _NO_POOLER),
    "deberta-v2": Family(DebertaV2Model, DebertaBackbone, {}, _DEBERTA_SETTINGS),
    "distilbert": Family(DistilBertModel, DistilBertBackbone, {}),
    "electra": Family(ElectraModel, ElectraBackbone, {}),
    "mobilebert": Family(MobileBertModel, MobileBertBackbone, _NO_POOLER),
    "modernbert": Family(ModernBertModel, ModernBertBackbone, {}, _MODERNBERT_SETTINGS),
    "mpnet": Family(MPNetModel, MPNetBackbone, _NO_POOLER),
    "roberta": Family(RobertaModel, RobertaBackbone, _NO_POOLER),
    "xlm-roberta": Family(XLMRobertaModel, RobertaBackbone, _NO_POOLER),
}


def family_of(config: PreTrainedConfig) -> Family:
    """Return the family of an encoder.

    Raises:
        ValueError: the family is not supported; the message names the supported ones.
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
    config._attn_implementation = "sdpa" if family.encoder._supports_sdpa else "eager"
    return family.encoder(config, **family.options)


def read_encoder(folder: str | Path, labels: list[str]) -> PreTrainedModel:
    """Return a pretrained encoder, in float32 and without its own pooler, with these labels.

    Other weights in the folder, such as pretraining heads, are ignored silently.

    Raises:
        ValueError: the family is not supported, or weights of the encoder are missing.
        OSError: the folder holds no config or no weights.
    """
    config = AutoConfig.from_pretrained(folder)
    family = family_of(config)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: i for i, label in enumerate(labels)}
    with _quiet():
        loaded = family.encoder.from_pretrained(
            folder, config=config, dtype=torch.float32, output_loading_info=True, **family.options
        )
    # With `output_loading_info` the call returns a pair, which its annotation does not say.
    encoder, report = cast(tuple[PreTrainedModel, dict[str, Any]], loaded)
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise ValueError(
            f"{len(missing)} weights of the {config.model_type} encoder are missing, "
            f"{missing[0]} for one: is it another model than config.json says?"
        )
    return encoder


def build_backbone(encoder: PreTrainedModel) -> Backbone:
    """Return the common interface around an encoder."""
    return family_of(encoder.config).backbone(encoder)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress transformers' report on weights and its progress bar."""
    level, bars = messages.get_verbosity(), messages.is_progress_bar_enabled()
    messages.set_verbosity_error()
    messages.disable_progress_bar()
    try:
        yield
    finally:
        messages.set_verbosity(level)
        if bars:
            messages.enable_progress_bar()
