"""A checkpoint's weights: reading the files, and keeping track of which weights are used."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from models.checkpoints.errors import UnusableCheckpoint

# Weight files, in order of preference.
SAFE, SAFE_INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
FASTBERT = "fastbert.bin"
WEIGHT_FILES = (SAFE, SAFE_INDEX, PICKLED, PICKLED_INDEX, FASTBERT)


class DroppedWeights(NamedTuple):
    """Names of unused weights, and the reason."""

    keys: str
    why: str


class Weights:
    """A checkpoint's weights; a reader takes or drops each of them once.

    Attributes:
        dropped: the weights dropped so far.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._left = dict(tensors)
        self.dropped: list[DroppedWeights] = []

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def has(self, pattern: str) -> bool:
        """Return whether the pattern matches the beginning of any weight's name."""
        return any(re.match(pattern, name) for name in self._left)

    def peek(self, name: str) -> Tensor:
        """Return a weight without taking it.

        Raises:
            UnusableCheckpoint: there is no weight of that name.
        """
        if name not in self._left:
            raise UnusableCheckpoint(f"the checkpoint has no {name}: is it complete?")
        return self._left[name]

    def take(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """Take weights and return them under other names; `names` maps new to stored names.

        Raises:
            UnusableCheckpoint: one of them is missing.
        """
        found = {new: self.peek(stored) for new, stored in names.items()}
        for stored in names.values():
            self._left.pop(stored, None)
        return found

    def take_modules(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """Take weight and bias of modules; `names` maps new to stored module names."""
        parts = ("weight", "bias")
        return self.take({f"{new}.{p}": f"{old}.{p}" for new, old in names.items() for p in parts})

    def take_all(self, prefix: str) -> dict[str, Tensor]:
        """Take all weights whose names begin with the prefix; return them without the prefix."""
        found = {n: tensor for n, tensor in self._left.items() if n.startswith(prefix)}
        for name in found:
            del self._left[name]
        return {name.removeprefix(prefix): tensor for name, tensor in found.items()}

    def indices(self, pattern: str) -> list[int]:
        """Return the distinct numbers in the names that the pattern's group matches, sorted."""
        found = (re.match(pattern, name) for name in self._left)
        return sorted({int(match[1]) for match in found if match})

    def drop(self, pattern: str, why: str, keys: str | None = None) -> None:
        """Drop all weights with names that the pattern matches at the beginning.

        Args:
            pattern: a regular expression.
            why: the reason, for the user.
            keys: name of the dropped weights for the user; by default the first name and a count.
        """
        gone = [name for name in self._left if re.match(pattern, name)]
        for name in gone:
            del self._left[name]
        if gone:
            more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
            self.dropped.append(DroppedWeights(keys or f"{gone[0]}{more}", why))


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return a checkpoint's weights, in float32.

    Reads safetensors, and PyTorch's own format without running any code in the file.

    Raises:
        UnusableCheckpoint: there are no weights, or a file cannot be read as plain weights.
    """
    name = next((name for name in WEIGHT_FILES if (folder / name).is_file()), None)
    if name is None:
        raise UnusableCheckpoint(f"{folder} holds no weights: expected {' or '.join(WEIGHT_FILES)}")
    tensors = _read(folder / name)
    if all(key.startswith("module.") for key in tensors):  # saved from DataParallel
        tensors = {key.removeprefix("module."): tensor for key, tensor in tensors.items()}
    return {_modern_name(key): _float32(tensor) for key, tensor in tensors.items()}


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".json":
        shards = sorted(set(json.loads(path.read_bytes())["weight_map"].values()))
        return {key: t for shard in shards for key, t in _read(path.parent / shard).items()}
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise UnusableCheckpoint(f"{path} cannot be read: {error}") from None
    return _read_pickled(path)


def _read_pickled(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise various errors
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnusableCheckpoint(
            f"{path} cannot be read as plain weights, and nothing else in it is run: {reason}. "
            "Save it again with torch.save(model.state_dict(), ...) or as model.safetensors"
        ) from None
    content = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(t, Tensor) for t in content.values()):
        raise UnusableCheckpoint(f"{path} is no state dict: expected a tensor for every name")
    return content


def _modern_name(key: str) -> str:
    """Return the name that transformers uses today for a layer norm's weights."""
    return re.sub(
        r"(LayerNorm)\.gamma$", r"\1.weight", re.sub(r"(LayerNorm)\.beta$", r"\1.bias", key)
    )


def _float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
