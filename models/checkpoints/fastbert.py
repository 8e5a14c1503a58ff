"""FastBERT (Liu et al. 2020), with the names and the layer norm of the UER toolkit."""

import re
from collections.abc import Mapping

from torch import Tensor
from transformers import BertConfig

from models.checkpoints.label_names import numbered
from models.checkpoints.parsed import CheckpointInfo, ParsedCheckpoint, stated_rule
from models.checkpoints.raw_checkpoint import RawCheckpoint
from models.checkpoints.weights import Weights
from models.errors import UnusableCheckpoint, in_one_line
from models.heads import AttentionHeadConfig
from models.multi_exit import ExitConfig

_HEAD = r"classifiers\.(\d+)\.output_layer_0\.weight$"
_HEAD_NAMES = {
    "narrow": "output_layer_0",
    "query": "self_atten.linear_layers.0",
    "key": "self_atten.linear_layers.1",
    "value": "self_atten.linear_layers.2",
    "context": "self_atten.final_linear",
    "pooler": "output_layer_1",
    "classifier": "output_layer_2",
}
_EMBEDDING_NAMES = {
    "word_embedding.": "embeddings.word_embeddings.",
    "position_embedding.": "embeddings.position_embeddings.",
    "segment_embedding.": "embeddings.token_type_embeddings.",
    "layer_norm.gamma": "embeddings.LayerNorm.weight",
    "layer_norm.beta": "embeddings.LayerNorm.bias",
}
_LAYER_NAMES = {
    "self_attn.linear_layers.0.": "attention.self.query.",
    "self_attn.linear_layers.1.": "attention.self.key.",
    "self_attn.linear_layers.2.": "attention.self.value.",
    "self_attn.final_linear.": "attention.output.dense.",
    "layer_norm_1.gamma": "attention.output.LayerNorm.weight",
    "layer_norm_1.beta": "attention.output.LayerNorm.bias",
    "feed_forward.linear_1.": "intermediate.dense.",
    "feed_forward.linear_2.": "output.dense.",
    "layer_norm_2.gamma": "output.LayerNorm.weight",
    "layer_norm_2.beta": "output.LayerNorm.bias",
}
_HEADS_IN_CLASSIFIER = 2
_LAYER = re.compile(r"transformer\.(\d+)\.")


def claims(raw: RawCheckpoint) -> bool:
    """Return whether the heads are FastBERT's."""
    return raw.weights.has(_HEAD)


def read(raw: RawCheckpoint) -> ParsedCheckpoint:
    """Parse the checkpoint.

    Raises:
        UnusableCheckpoint: a setting asks for an architecture that is not supported.
    """
    _check_settings(raw)
    weights = raw.weights
    prefix = "kernel." if weights.has(r"kernel\.") else ""
    weights.drop(rf"{prefix}target\.", "the language model's head", f"{prefix}target.*")
    layers = [i + 1 for i in weights.indices(_HEAD)]
    narrow = weights.peek("classifiers.0.output_layer_0.weight")
    num_labels = len(weights.peek("classifiers.0.output_layer_2.bias"))
    labels = raw.labels if raw.config.get("id2label") else numbered(num_labels)
    encoder = _encoder(weights, prefix)
    depth = int(raw.config["layers_num"])
    heads = tuple(
        weights.take_modules(
            {new: f"classifiers.{layer - 1}.{old}" for new, old in _HEAD_NAMES.items()}
        )
        for layer in layers
    )
    info = CheckpointInfo(
        format="FastBERT",
        family="bert",
        labels=labels,
        depth=depth,
        exits=ExitConfig(
            exits=tuple(layers),
            head=AttentionHeadConfig(
                kind="attention", width=len(narrow), num_heads=_HEADS_IN_CLASSIFIER
            ),
            unbiased_norm=True,
        ),
        rule=stated_rule(rule="normalized_entropy", threshold=raw.config.get("speed")),
        rule_hint='{"rule": "normalized_entropy", "threshold": SPEED}: its speed 0 is never',
        settings=raw.settings("pooling", "speed"),
        notes=()
        if raw.config.get("id2label")
        else ("FastBERT's files name no labels: add id2label to config.json",),
    )
    return ParsedCheckpoint(info, _config(raw, encoder, labels), encoder, heads)


def _check_settings(raw: RawCheckpoint) -> None:
    for key, wanted in (("embedding", "bert"), ("encoder", "bert"), ("pooling", "first")):
        given = raw.config.get(key, wanted)
        if given != wanted:
            raise UnusableCheckpoint(
                f"{raw.folder}: {key} {given!r} is not supported for FastBERT, only {wanted!r}"
            )
    if raw.config.get("subword_type", "none") != "none":
        raise UnusableCheckpoint(f"{raw.folder}: FastBERT with subword features is not supported")


def _config(
    raw: RawCheckpoint, encoder: Mapping[str, Tensor], labels: tuple[str, ...]
) -> BertConfig:
    tables = {
        name: encoder[f"embeddings.{name}_embeddings.weight"]
        for name in ("word", "position", "token_type")
    }
    try:
        return BertConfig(
            vocab_size=len(tables["word"]),
            hidden_size=raw.config["hidden_size"],
            num_hidden_layers=raw.config["layers_num"],
            num_attention_heads=raw.config["heads_num"],
            intermediate_size=raw.config["feedforward_size"],
            max_position_embeddings=len(tables["position"]),
            type_vocab_size=len(tables["token_type"]),
            id2label=dict(enumerate(labels)),
            label2id={name: i for i, name in enumerate(labels)},
        )
    except KeyError as error:
        raise UnusableCheckpoint(f"{raw.folder}/config.json says no {error.args[0]}") from None
    except Exception as error:  # transformers' checks raise no narrower type
        raise UnusableCheckpoint(f"{raw.folder}/config.json: {in_one_line(error)}") from error


def _encoder(weights: Weights, prefix: str) -> dict[str, Tensor]:
    found = {}
    for name, tensor in weights.take_all(f"{prefix}embedding.").items():
        found[_renamed(name, _EMBEDDING_NAMES)] = tensor
    for name, tensor in weights.take_all(f"{prefix}encoder.").items():
        layer = _LAYER.match(name)
        if layer is None:
            raise UnusableCheckpoint(f"{prefix}encoder.{name} is no layer of a UER transformer")
        inner = _renamed(name[layer.end() :], _LAYER_NAMES)
        found[f"encoder.layer.{layer[1]}.{inner}"] = tensor
    return found


def _renamed(name: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    raise UnusableCheckpoint(f"{name} is no weight of a UER transformer that is supported")
