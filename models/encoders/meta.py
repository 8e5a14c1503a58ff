"""Making a model without memory for its weights, to compare shapes before memory is taken."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig

from models.encoders.first_layers import cut_config
from models.errors import UnusableCheckpoint, in_one_line

_Module = TypeVar("_Module", bound=nn.Module)
Shapes = Mapping[str, Sequence[int]]


def without_memory(make: Callable[[], _Module], config: PreTrainedConfig) -> _Module:
    """Return the model with weights that have shapes only.

    Args:
        make: makes the model.
        config: what it is made by.

    Raises:
        UnusableCheckpoint: its config makes no model.
    """
    try:
        with torch.device("meta"):
            return make()
    except Exception as error:  # transformers and PyTorch raise no narrower type
        raise UnusableCheckpoint(
            f"config.json makes no model: {in_one_line(error)}{culprit(config)}"
        ) from error


def culprit(config: PreTrainedConfig) -> str:
    """Return which setting keeps an encoder from reading a text, in words.

    Each is tried at its usual value, in an encoder of one layer, which takes a second or so. Empty
    if none does so alone.
    """
    try:
        config = cut_config(config, 1)
    except Exception as error:  # a value of a wrong type
        return f"; {in_one_line(error)}"
    given, usual = config.to_dict(), type(config)().to_dict()
    if _reads(config):
        return ""
    for name in sorted(given.keys() & usual.keys() - {"num_hidden_layers"}):
        if given[name] != usual[name]:
            with suppress(Exception):  # the usual value does not fit another setting
                if _reads(type(config).from_dict({**given, name: usual[name]})):
                    return f"; {name} is {given[name]!r}, where {usual[name]!r} is usual"
    return ""


def _reads(config: PreTrainedConfig) -> bool:
    token = torch.zeros(1, 1, dtype=torch.int64)
    try:
        with torch.device("meta"):  # what cannot be made takes no memory either
            AutoModel.from_config(config)
        with torch.inference_mode():
            AutoModel.from_config(config).eval()(token, torch.ones_like(token))
    except Exception:  # PyTorch and transformers raise no narrower type
        return False
    return True


def check_shapes(module: nn.Module, shapes: Shapes, part: str) -> None:
    """Compare a model's weights with those that are there.

    Raises:
        UnusableCheckpoint: weights are missing or have another shape than the config says, or the
            model has no place for some of them.
    """
    expected = module.state_dict()
    missing = sorted(expected.keys() - shapes.keys())
    if missing:
        raise UnusableCheckpoint(f"{part}: {missing[0]} is missing ({len(missing)} in all)")
    for name, value in expected.items():
        if list(shapes[name]) != list(value.shape):
            raise UnusableCheckpoint(
                f"{part}: {name} has shape {list(shapes[name])}, but config.json asks for "
                f"{list(value.shape)}"
            )
    if surplus := sorted(shapes.keys() - expected.keys()):
        raise UnusableCheckpoint(
            f"{part}: the weights hold {listed(surplus)}, but the model that config.json describes "
            "has no such part: is config.json these weights' own?"
        )


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"
