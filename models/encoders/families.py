"""The encoder families that can be given exits. A further one is an adapter and a line here."""

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
# As they were called before transformers 5.
_MODERNBERT_SETTINGS = frozenset(
    {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}
)


class Family(NamedTuple):
    """A transformers model class, and the adapter that takes its encoder apart.

    Attributes:
        encoder: the class.
        adapter: what takes an encoder of this class apart.
        options: what the class is told besides the config, to be an encoder and nothing more.
        settings: keys of config.json that matter, though the config class does not list them.
    """

    encoder: type[PreTrainedModel]
    adapter: Callable[[Any], Backbone]
    options: dict[str, Any]
    settings: frozenset[str] = frozenset()


# By transformers' model type. MiniLM, ElasticBERT and others of BERT's modules are `bert`.
FAMILIES: dict[str, Family] = {
    "albert": Family(AlbertModel, AlbertBackbone, _NO_POOLER),
    "bert": Family(BertModel, BertBackbone, _NO_POOLER),
    "deberta-v2": Family(DebertaV2Model, DebertaBackbone, {}, _DEBERTA_SETTINGS),
    "distilbert": Family(DistilBertModel, DistilBertBackbone, {}),
    "electra": Family(ElectraModel, ElectraBackbone, {}),
    "mobilebert": Family(MobileBertModel, MobileBertBackbone, _NO_POOLER),
    "modernbert": Family(ModernBertModel, ModernBertBackbone, {}, _MODERNBERT_SETTINGS),
    "roberta": Family(RobertaModel, RobertaBackbone, _NO_POOLER),
    "xlm-roberta": Family(XLMRobertaModel, RobertaBackbone, _NO_POOLER),
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
    config._attn_implementation = "sdpa" if family.encoder._supports_sdpa else "eager"
    return family.encoder(config, **family.options)


def read_encoder(folder: str | Path, labels: list[str]) -> PreTrainedModel:
    """Return a pretrained encoder, in float32 and without its own pooler, with these labels.

    Whatever else the folder holds (heads it was pretrained with) is left out without a word.

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
    # The signature does not say that it is two things with `output_loading_info`.
    encoder, found = cast(tuple[PreTrainedModel, dict[str, Any]], loaded)
    if found["missing_keys"]:
        missing = sorted(found["missing_keys"])
        raise ValueError(
            f"{len(missing)} weights of the {config.model_type} encoder are missing, "
            f"{missing[0]} for one: is it another model than config.json says?"
        )
    return encoder


def adapt(encoder: PreTrainedModel) -> Backbone:
    """Return the adapter for an encoder."""
    return family_of(encoder.config).adapter(encoder)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back transformers' report on weights, and its bar; what matters of it is raised."""
    level, bars = messages.get_verbosity(), messages.is_progress_bar_enabled()
    messages.set_verbosity_error()
    messages.disable_progress_bar()
    try:
        yield
    finally:
        messages.set_verbosity(level)
        if bars:
            messages.enable_progress_bar()
