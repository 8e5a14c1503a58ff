"""A tiny random encoder of every family: one row per family, two or three layers of width 32."""

from typing import Any

import torch
from torch import nn
from transformers import (
    AlbertConfig,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    MobileBertConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    XLMRobertaConfig,
)

from models.encoders.families import build_encoder

DEPTH = 3
_LAYERS = "num_hidden_layers"
MAX_TOKENS = 64
VOCABULARY = 200
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    _LAYERS: DEPTH,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": MAX_TOKENS,
    "initializer_range": 0.2,
}
# Positions begin after the padding id, which is 1.
_AFTER_PADDING = _SIZES | {"max_position_embeddings": MAX_TOKENS + 2, "type_vocab_size": 1}
# Version 3, and the convolution that large models of version 2 have. Beyond 4 tokens, distances
# share buckets.
_DEBERTA: dict[str, Any] = _SIZES | {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["c2p", "p2c"],
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "type_vocab_size": 0,
    "conv_kernel_size": 3,
    "conv_act": "gelu",
}
_MOBILEBERT: dict[str, Any] = _SIZES | {
    "embedding_size": 16,
    "intra_bottleneck_size": 16,
    "num_feedforward_networks": 2,
}
# Local layers see 4 tokens to each side.
_MODERNBERT: dict[str, Any] = _SIZES | {
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "cls_token_id": 2,
    "sep_token_id": 3,
}

CONFIGS: dict[str, PreTrainedConfig] = {
    "albert": AlbertConfig(**_SIZES, embedding_size=8),
    "bert": BertConfig(**_SIZES),
    "deberta-v2": DebertaV2Config(**_DEBERTA),
    "distilbert": DistilBertConfig(**_SIZES, hidden_dim=48),
    "electra": ElectraConfig(**_SIZES, embedding_size=16),
    "mobilebert": MobileBertConfig(**_MOBILEBERT),
    "modernbert": ModernBertConfig(**_MODERNBERT),
    "mpnet": MPNetConfig(**_AFTER_PADDING),
    "roberta": RobertaConfig(**_AFTER_PADDING),
    "xlm-roberta": XLMRobertaConfig(**_AFTER_PADDING),
}
# XLM-RoBERTa has RoBERTa's layers and adapter.
DISTINCT = {name: config for name, config in CONFIGS.items() if name != "xlm-roberta"}
# Other forms that published models of the families have.
FORMS: dict[str, PreTrainedConfig] = {
    "bert without token types": BertConfig(**_SIZES, type_vocab_size=1),
    "deberta with keys of their own": DebertaV2Config(
        **_DEBERTA | {"share_att_key": False, "conv_kernel_size": 0, "type_vocab_size": 2}
    ),
    "deberta without buckets": DebertaV2Config(
        **_DEBERTA | {"position_buckets": -1, "position_biased_input": True}
    ),
    "deberta without relative attention": DebertaV2Config(
        **_SIZES, pad_token_id=0, type_vocab_size=2
    ),
    "electra as wide as its layers": ElectraConfig(**_SIZES, embedding_size=32),
    "mobilebert without bottlenecks, with norms": MobileBertConfig(
        **_MOBILEBERT | {"use_bottleneck": False, "normalization_type": "layer_norm"}
    ),
    "roberta with token types": RobertaConfig(**_AFTER_PADDING | {"type_vocab_size": 2}),
}


def tiny_encoder(config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    """Return a random encoder in which biases, scales and padding's embedding count, too."""
    torch.manual_seed(seed)
    encoder = build_encoder(type(config).from_dict(config.to_dict())).eval()
    with torch.no_grad():
        for module in encoder.modules():
            if isinstance(module, nn.Embedding):
                module.weight.normal_(std=0.3)
        for weights in encoder.parameters():
            if weights.ndim == 1:
                weights.add_(torch.randn_like(weights), alpha=0.1)
    return encoder


def with_depth(config: PreTrainedConfig, depth: int) -> PreTrainedConfig:
    """Return the config of a model of the same layers, but more of them or fewer."""
    described = config.to_dict() | {config.attribute_map.get(_LAYERS, _LAYERS): depth}
    if "layer_types" in described:
        described["layer_types"] = described["layer_types"][:depth]
    return type(config).from_dict(described)
