"""A transformers classifier without exits: one exit, after its last layer.

Class names in `config.json` can be wrong, so the names of the head's weights decide. The class
name decides only between classes with the same weights (ModernBERT, MobileBERT).
"""

from typing import Any, NamedTuple

import transformers
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
)

from models.checkpoints.parsed import CheckpointInfo, ParsedCheckpoint
from models.checkpoints.raw_checkpoint import RawCheckpoint
from models.encoders.families import FAMILIES
from models.encoders.meta import without_memory
from models.errors import UnusableCheckpoint
from models.heads import HeadConfig
from models.multi_exit import ExitConfig

_KINDS = ("Sequence", "Token")

_ONE_LOGIT = (
    "one logit, and config.json states no problem_type regression: clients of Hugging Face, TEI "
    "and vLLM get its sigmoid, as from those, and /v1/classify gives the value itself"
)


class _Shape(NamedTuple):
    """Stored module names of a head, and its configuration.

    Attributes:
        dense: the dense layer; None if there is none.
        classifier: the classifier.
        norm: a norm between dense layer and classifier; None if there is none.
        options: arguments of `HeadConfig`.
    """

    dense: str | None
    classifier: str
    norm: str | None
    options: dict[str, Any]


def claims(raw: RawCheckpoint) -> bool:
    """Return whether there is a classifier."""
    return raw.weights.has(r"classifier\.(weight|out_proj\.weight)$")


def read(raw: RawCheckpoint) -> ParsedCheckpoint:
    """Parse the checkpoint.

    Raises:
        UnusableCheckpoint: the family or the head's shape is not supported.
    """
    family = _family(raw)
    config = raw.encoder_config(family)
    prefix = FAMILIES[family].encoder.base_model_prefix
    shape = _shape(raw, config, prefix, _own_weights(raw, config, prefix))
    head = HeadConfig(pooler=shape.dense is not None, **shape.options)
    parts = {"pooler": shape.dense, "norm": shape.norm, "classifier": shape.classifier}
    names = {
        f"{new}.{p}": f"{stored}.{p}"
        for new, stored in parts.items()
        for p in ("weight", "bias")
        if f"{stored}.{p}" in raw.weights
    }
    heads = (raw.weights.take(names),)
    raw.weights.drop(rf"{prefix}\.pooler\.", "a pooler that the head does not read")
    depth, task = config.num_hidden_layers, _task(raw, head)
    is_logit = task == "regression" and raw.config.get("problem_type") != "regression"
    info = CheckpointInfo(
        format="transformers",
        family=family,
        labels=raw.labels,
        depth=depth,
        exits=ExitConfig(exits=(depth,), task=task, head=head),
        rule_hint='{"rule": "never"}: with one exit there is nothing to choose',
        settings={"architectures": raw.architecture} if raw.architecture else {},
        value_is_logit=is_logit,
        notes=(
            "a plain classifier: to give it exits, `offramp train`; to compare with a shorter "
            "model, `--layers`",
            *([_ONE_LOGIT] if is_logit else []),
        ),
    )
    return ParsedCheckpoint(info, config, raw.weights.take_all(f"{prefix}."), heads)


def _family(raw: RawCheckpoint) -> str:
    if stated := raw.config.get("model_type"):
        return str(stated)
    for family, (encoder, *_) in FAMILIES.items():
        if raw.weights.has(rf"{encoder.base_model_prefix}\."):
            return family
    raise UnusableCheckpoint(
        f"{raw.folder}: config.json has no model_type, and the weights' names show no family"
    )


def _task(raw: RawCheckpoint, head: HeadConfig) -> Any:
    if head.pooling == "tokens":
        return "token"
    if len(raw.labels) > 1 and raw.config.get("problem_type") == "regression":
        raise UnusableCheckpoint(
            f"{raw.folder}: a regression with {len(raw.labels)} values is not supported, only one"
        )
    return raw.task


class _OwnHead(NamedTuple):
    """A class of transformers, and the names of the weights that it has after the encoder."""

    name: str
    weights: set[str]


def _own_weights(raw: RawCheckpoint, config: PreTrainedConfig, prefix: str) -> set[str]:
    """Return the names of the weights that transformers' class has after the encoder.

    Raises:
        UnusableCheckpoint: the head is of no such class, of which only the weights would be known,
            or it may be of two.
    """
    unknown = [name for name in raw.architectures if name not in dir(transformers)]
    if unknown:
        raise UnusableCheckpoint(
            f"{raw.folder}/config.json: architectures names {unknown[0]}, which is no class of "
            f"transformers {transformers.__version__}: what it computes cannot be known here. "
            "Write the class of transformers that computes the same, if there is one; otherwise "
            f"give its encoder exits: `offramp train --encoder {raw.folder} --train FILE "
            "--dev FILE --out MODEL`"
        )
    if "ForMultipleChoice" in raw.architecture:
        raise UnusableCheckpoint(
            f"{raw.folder} is a {raw.architecture}: it scores the choices that a text has, and is "
            "no classifier of texts"
        )
    of_texts = _own_head(AutoModelForSequenceClassification, config, prefix)
    of_tokens = _own_head(AutoModelForTokenClassification, config, prefix)
    as_tagger = f'"architectures": ["{of_tokens.name}"]'
    class_named = any(f"For{kind}Classification" in raw.architecture for kind in _KINDS)
    if of_texts.weights == of_tokens.weights and not class_named:
        raise UnusableCheckpoint(
            f"{raw.folder}/config.json names no class for texts or for tokens in architectures, "
            "and both have the weights of this one. Write "
            f'"architectures": ["{of_texts.name}"], or {as_tagger} if it labels tokens'
        )
    own = of_tokens if "TokenClassification" in raw.architecture else of_texts
    missing = sorted(name for name in own.weights if name not in raw.weights)
    if missing:
        tags = all(name in raw.weights for name in of_tokens.weights)
        say_so = f"If it labels tokens, say so in config.json: {as_tagger}. " if tags else ""
        raise UnusableCheckpoint(
            f"{raw.folder}: the classifier is not that of transformers' {own.name}, which has "
            f"{missing[0]} too. {say_so}If it is of a class of its own, what that computes cannot "
            "be known here: give its encoder exits, with the texts it was trained on: "
            f"`offramp train --encoder {raw.folder} --train FILE --dev FILE --out MODEL`"
        )
    return own.weights


def _own_head(auto: Any, config: PreTrainedConfig, prefix: str) -> _OwnHead:
    model = without_memory(lambda: auto.from_config(config), config)
    inside = tuple(
        f"{prefix}.{name}." for name, _ in model.base_model.named_children() if name != "pooler"
    )
    return _OwnHead(
        type(model).__name__, {name for name in model.state_dict() if not name.startswith(inside)}
    )


def _shape(raw: RawCheckpoint, config: PreTrainedConfig, prefix: str, weights: set[str]) -> _Shape:
    """Return the head's shape, decided by the names of its weights.

    Those that its class does not have are left: transformers does not read them.
    """
    of_tokens = "TokenClassification" in raw.architecture
    first = {"pooling": "tokens" if of_tokens else "first"}
    if "head.dense.weight" in weights:
        return _modernbert(config, of_tokens, _activation(raw, config, "classifier_activation"))
    if "classifier.out_proj.weight" in weights:
        activation = "gelu" if config.model_type == "electra" else "tanh"
        return _Shape(
            "classifier.dense", "classifier.out_proj", None, {**first, "activation": activation}
        )
    if "pre_classifier.weight" in weights:
        return _Shape("pre_classifier", "classifier", None, {**first, "activation": "relu"})
    if "pooler.dense.weight" in weights:
        activation = _activation(raw, config, "pooler_hidden_act")
        return _Shape("pooler.dense", "classifier", None, {**first, "activation": activation})
    for pooler in (f"{prefix}.pooler.dense", f"{prefix}.pooler"):
        if f"{pooler}.weight" in weights:
            return _Shape(pooler, "classifier", None, first)
    return _Shape(None, "classifier", None, first)


def _modernbert(config: PreTrainedConfig, of_tokens: bool, activation: str) -> _Shape:
    pooled = "mean" if config.classifier_pooling == "mean" else "first"
    options = {
        "pooling": "tokens" if of_tokens else pooled,
        "activation": activation,
        "bias": bool(config.classifier_bias),
        "norm": config.norm_eps,
        "norm_bias": bool(config.norm_bias),
    }
    return _Shape("head.dense", "classifier", "head.norm", options)


def _activation(raw: RawCheckpoint, config: PreTrainedConfig, setting: str) -> str:
    name = str(getattr(config, setting))
    if name not in ("tanh", "relu", "gelu"):
        raise UnusableCheckpoint(f"{raw.folder}: {setting} {name!r} is not supported")
    return name
