"""The supported encoder families. A further family is a backbone class and a line here."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
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
from models.encoders.deberta import DebertaBackbone
from models.encoders.distilbert import DistilBertBackbone
from models.encoders.electra import ElectraBackbone
from models.encoders.first_layers import cut_config, layer_of
from models.encoders.meta import check_shapes, without_memory
from models.encoders.mobilebert import MobileBertBackbone
from models.encoders.modernbert import ModernBertBackbone
from models.encoders.mpnet import MPNetBackbone
from models.encoders.roberta import RobertaBackbone
from models.encoders.stated_config import stated_config
from models.errors import UnusableCheckpoint, in_one_line
from models.model_files import CONFIG
from models.weight_files import read_shapes, read_weights

_Value = TypeVar("_Value")
# Pretrained ElasticBERT is BERT with a pooler for every layer.
_ELASTICBERT = "elasticbert"
# Buffers that old versions of transformers saved.
BUFFERS = r".*(position_ids|token_type_ids|rotary_emb\.inv_freq)$"
# Heads that some systems keep inside the encoder: DeeBERT, BERxiT, ElasticBERT.
_HEADS = r"(encoder|transformer)\.(highway|lte_classifier|pooler)\."
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
# Names of these settings before transformers 5, and one that is taken before another's.
_MODERNBERT_SETTINGS = frozenset(
    {
        "global_attn_every_n_layers",
        "global_rope_theta",
        "local_rope_theta",
        "rope_scaling",
        "sliding_window",
    }
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
    stated = stated_config(folder)
    family = stated.get("model_type") or _named_family(folder)
    if family == _ELASTICBERT:
        family = "bert"
    try:
        if family in FAMILIES and family != stated.get("model_type"):
            return CONFIG_MAPPING[family].from_dict(stated | {"model_type": family})
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # transformers' checks raise no narrower type
        raise UnusableCheckpoint(f"{folder}/{CONFIG}: {in_one_line(error)}") from error


def _named_family(folder: Path) -> str | None:
    """Return the family that names the weights' first part: ElasticBERT, or one of those above.

    The configs of early-exit systems older than transformers 4 name no model type.
    """
    parts = {name.partition(".")[0] for name in read_shapes(folder)}
    return next((family for family in (_ELASTICBERT, *FAMILIES) if family in parts), None)


def read_encoder(
    folder: str | Path, labels: list[str], layers: int | None = None
) -> PreTrainedModel:
    """Return a pretrained encoder, in float32 and without its own pooler, with these labels.

    Heads in the folder are ignored silently: of the pretraining, or of another task.

    Args:
        folder: a transformers folder.
        labels: label names by id.
        layers: keep only the first so many layers.

    Raises:
        ValueError: the family is not supported.
        UnusableCheckpoint: the folder holds no config or no weights, they do not fit, or they are
            of more than the config describes.
    """
    folder = Path(folder)
    config = read_config(folder)
    family_of(config)
    if layers is not None:
        config = cut_config(config, layers)
    config.dtype = torch.float32
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: i for i, label in enumerate(labels)}
    empty = without_memory(lambda: build_encoder(config), config)
    shapes = read_shapes(folder)
    prefix, *others = _prefixes(empty, shapes) or [""]
    _check_parts(empty, prefix, shapes, folder)
    own = _of_encoder(empty, prefix, shapes, layers)
    check_shapes(empty, own, f"{folder}: the {config.model_type} encoder")
    encoder = build_encoder(config)
    weights = read_weights(folder)
    encoder.load_state_dict(_of_encoder(empty, prefix, weights, layers))
    for other in others:
        _check_same(encoder, _of_encoder(empty, other, weights, layers), [prefix, other], folder)
    return encoder.eval()


def _of_encoder(
    encoder: PreTrainedModel, prefix: str, named: Mapping[str, _Value], layers: int | None
) -> dict[str, _Value]:
    """Return what is of the encoder's own parts, up to a layer, and not its pooler or a head."""
    parts = {name for name, _ in encoder.named_children()}
    other = re.compile(f"{BUFFERS}|{_HEADS}")
    return {
        name: value
        for name, value in _after(prefix, named).items()
        if name.partition(".")[0] in parts
        and not other.match(name)
        and (layers is None or layer_of(name) < layers)
    }


def _after(prefix: str, named: Mapping[str, _Value]) -> dict[str, _Value]:
    return {n.removeprefix(prefix): value for n, value in named.items() if n.startswith(prefix)}


def _prefixes(encoder: PreTrainedModel, names: Iterable[str]) -> list[str]:
    """Return what stands before the names of encoders of this form, in a class of any kind."""
    first = next(iter(encoder.state_dict()))
    found = re.compile(rf"(|.*\.){re.escape(first)}").fullmatch
    return sorted((match[1] for match in map(found, names) if match), key=len)


def _check_parts(encoder: PreTrainedModel, prefix: str, names: Iterable[str], folder: Path) -> None:
    """Refuse parts beside the encoder's own that change what it computes, such as adapters.

    Where nothing stands before the encoder's names, heads of any kind may stand beside them.
    """
    parts = {name for name, _ in encoder.named_children()} | {"pooler"}
    inside = _after(prefix, dict.fromkeys(names)) if prefix else {}
    unknown = [name for name in inside if name.partition(".")[0] not in parts]
    unknown = [name for name in unknown if not re.match(f"{BUFFERS}|{_HEADS}", name)]
    if unknown:
        raise UnusableCheckpoint(
            f"{folder}: the {encoder.config.model_type} encoder has no such part: "
            f"{prefix}{unknown[0]}; merge it into the encoder's own weights, if it can be"
        )


def _check_same(
    encoder: PreTrainedModel, other: Mapping[str, Tensor], prefixes: list[str], folder: Path
) -> None:
    """Refuse a second encoder that is not a copy of the first."""
    own = encoder.state_dict()
    is_whole = own.keys() <= other.keys()
    if is_whole and not all(torch.equal(own[name], other[name]) for name in own):
        named = " and ".join(f"{prefix}*" for prefix in prefixes)
        raise UnusableCheckpoint(
            f"{folder} holds several encoders, {named}: save the one that is meant in a folder of "
            "its own"
        )


def build_backbone(encoder: PreTrainedModel) -> Backbone:
    """Return the common interface around an encoder."""
    return family_of(encoder.config).backbone(encoder)
