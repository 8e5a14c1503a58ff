"""Keeping an encoder's first layers only."""

import re

from transformers import PreTrainedConfig

# Names of a layer's weights, in all families that do not share them.
LAYER = re.compile(r"(?:^|\.)layers?\.(\d+)\.(.+)$")


def cut_config(config: PreTrainedConfig, layers: int) -> PreTrainedConfig:
    """Return the config of the first layers."""
    config = type(config).from_dict(config.to_dict())
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    return config


def layer_of(name: str) -> int:
    """Return the layer of a weight, counted from 0; -1 if it is of none."""
    match = LAYER.search(name)
    return int(match[1]) if match else -1
