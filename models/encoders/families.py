"""The supported encoder families. A further family is a backbone class and a line here."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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

from models.encoders.albert import AlbertBackbone
from models.encoders.backbone import Backbone
from models.encoders.bert import BertBackbone
from models.encoders.config_sizes import check_sizes
from models.encoders.deberta import DebertaBackbone
from models.encoders.distilbert import DistilBertBackbone
from models.encoders.electra import ElectraBackbone
from models.encoders.meta import check_shapes, without_memory
from models.encoders.mobilebert import MobileBertBackbone
from models.encoders.modernbert import ModernBertBackbone
from models.encoders.mpnet import MPNetBackbone
from models.encoders.roberta import RobertaBackbone
from models.errors import UnusableCheckpoint, in_one_line
from models.model_files import CONFIG, check_files, read_json
from models.weight_files import read_shapes, read_weights

_Value = TypeVar("_Value")
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


def read_config(folder: Path) -> PreTrainedConfig:
    """Return the config of a transformers folder, whose files are checked first.

    Raises:
        UnusableCheckpoint: a file lies elsewhere or is too large, or the config cannot be used.
    """
    check_files(folder)
    if not (folder / CONFIG).is_file():
        raise UnusableCheckpoint(f"{folder} holds no model: {CONFIG} is missing")
    check_sizes(read_json(folder, CONFIG), folder / CONFIG)
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # transformers' checks raise no narrower type
        raise UnusableCheckpoint(f"{folder}/{CONFIG}: {in_one_line(error)}") from error


def read_encoder(folder: str | Path, labels: list[str]) -> PreTrainedModel:
    """Return a pretrained encoder, in float32 and without its own pooler, with these labels.

    Other weights in the folder, such as pretraining heads, are ignored silently.

    Raises:
        ValueError: the family is not supported.
        UnusableCheckpoint: the folder holds no config or no weights, or they do not fit.
    """
    folder = Path(folder)
    config = read_config(folder)
    family = family_of(config)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: i for i, label in enumerate(labels)}
    prefix = f"{family.encoder.base_model_prefix}."
    shapes = _without(prefix, read_shapes(folder))
    empty = without_memory(lambda: build_encoder(config))
    check_shapes(empty, shapes, f"{folder}: the {config.model_type} encoder")
    encoder, weights = build_encoder(config), _without(prefix, read_weights(folder))
    encoder.load_state_dict({name: weights[name] for name in encoder.state_dict()})
    return encoder.eval()


def _without(prefix: str, named: Mapping[str, _Value]) -> dict[str, _Value]:
    return {name.removeprefix(prefix): value for name, value in named.items()}


def build_backbone(encoder: PreTrainedModel) -> Backbone:
    """Return the common interface around an encoder."""
    return family_of(encoder.config).backbone(encoder)
