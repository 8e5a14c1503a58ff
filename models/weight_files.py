"""Reading the weights of a model folder from any kind of file, and none that would run code."""

import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from models.errors import UnusableCheckpoint
from models.model_files import locate, read_json
from models.wrong_folders import instead

# Weight files, in order of preference.
SAFE, SAFE_INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
FASTBERT = "fastbert.bin"
WEIGHT_FILES = (SAFE, SAFE_INDEX, PICKLED, PICKLED_INDEX, FASTBERT)
_SUFFIXES = (".safetensors", ".bin")
# A model may save one tensor under several names.
_MOST_NAMES = 8
# Parts of names that torch.compile and FSDP put before those of the modules that they wrap.
_COMPILED = re.compile(r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
# What a training keeps beside the model: class weights of its loss, a count of averaged weights.
OF_TRAINING = re.compile(
    r"(\w+\.)*(\w*loss\w*|criterion)\.|(\w+\.)*(class_weights|pos_weight)$|n_averaged$"
)
# Types whose values are the weights themselves, by safetensors' names and PyTorch's.
_NUMBERS = {"F16", "BF16", "F32", "F64", "float16", "bfloat16", "float32", "float64"}
# What a model counts by, and no weight.
_COUNTS = re.compile(r"(.*\.)?(position_ids|token_type_ids|num_batches_tracked)$")
# How PyTorch names what it would have to run.
_CODE = re.compile(r"Unsupported global: GLOBAL (\S+)")
# What an encoder is called inside its classifier.
_ENCODER = re.compile(r"\w*bert\w*|electra|mpnet")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return a checkpoint's weights, in float32.

    Reads safetensors, and PyTorch's own format without running any code in the file.

    Raises:
        UnusableCheckpoint: there are no weights, or a file cannot be read as plain weights.
    """
    tensors = _without_wrapper(dict(_read(folder, "cpu")))
    return {name: _float32(tensor) for name, tensor in tensors.items()}


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a checkpoint's weights; errors as in `read_weights`."""
    tensors = _without_wrapper(dict(_read(folder, "meta")))
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _read(folder: Path, device: str) -> Iterator[tuple[str, Tensor]]:
    for path in _weight_files(folder):
        read = _read_safe if path.name.endswith(".safetensors") else _read_pickled
        yield from read(path, device).items()


def _weight_files(folder: Path) -> list[Path]:
    """Return the files that hold the weights, under their own names."""
    name = next((name for name in WEIGHT_FILES if (folder / name).is_file()), None)
    if name is None:
        expected = " or ".join(WEIGHT_FILES)
        raise UnusableCheckpoint(f"{folder} holds no weights: expected {expected}{instead(folder)}")
    paths = [folder / shard for shard in _shards(folder, name)]
    size, memory = sum(path.stat().st_size for path in paths), _memory_bytes()
    if size > memory:
        raise UnusableCheckpoint(
            f"{folder}: the weights have {size} bytes, and this machine has {memory} of memory"
        )
    return paths


def _shards(folder: Path, name: str) -> list[str]:
    if not name.endswith(".json"):
        return [name]
    named = read_json(folder, name).get("weight_map")
    if not isinstance(named, dict) or not all(isinstance(each, str) for each in named.values()):
        raise UnusableCheckpoint(f"{folder}/{name}: weight_map must name a file for every weight")
    shards = sorted(set(named.values()))
    for shard in shards:
        if not locate(folder, shard).is_file():
            raise UnusableCheckpoint(f"{folder}/{name} names {shard!r}, which is no file there")
        if not shard.endswith(_SUFFIXES):
            raise UnusableCheckpoint(
                f"{folder}/{name} names {shard!r}, which must end in {' or '.join(_SUFFIXES)}"
            )
    return shards


def _read_safe(path: Path, device: str) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            for name, each in slices.items():
                _check_type(path, name, each.get_dtype())
            if device == "meta":
                return {n: torch.empty(s.get_shape(), device="meta") for n, s in slices.items()}
            return {name: file.get_tensor(name) for name in slices}
    except (SafetensorError, OSError) as error:
        raise UnusableCheckpoint(f"{path} cannot be read: {error}") from None


def _read_pickled(path: Path, device: str) -> dict[str, Tensor]:
    if zipfile.is_zipfile(path):
        _check_not_packed(path)
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # damaged files raise various errors
        code = _CODE.search(str(error))
        reason = f"it holds {code[1]}" if code else "it is damaged, or none of PyTorch's"
        raise UnusableCheckpoint(
            f"{path} cannot be read as plain weights, and nothing else in it is run: {reason}. "
            "Save it again with torch.save(model.state_dict(), ...) or as model.safetensors"
        ) from None
    content = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(t, Tensor) for t in content.values()):
        raise UnusableCheckpoint(f"{path} is no state dict: expected a tensor for every name")
    _check_plain(path, content, device)
    return content


def _check_plain(path: Path, content: dict[Any, Tensor], device: str) -> None:
    """Refuse tensors that are larger than what the file holds of them."""
    left = _MOST_NAMES * path.stat().st_size
    for name, tensor in content.items():
        _check_type(path, str(name), str(tensor.dtype).removeprefix("torch."))
        plain = tensor.layout is torch.strided and tensor.device.type == device
        left -= tensor.numel() * tensor.element_size() if plain else 0
        if not plain or left < 0:
            raise UnusableCheckpoint(
                f"{path}: {name} is no plain tensor: expected all of its values in the file"
            )


def _check_type(path: Path, name: str, kind: str) -> None:
    """Refuse weights that are no numbers by themselves: quantized ones need their scales."""
    if kind not in _NUMBERS and not _COUNTS.match(name) and not OF_TRAINING.match(name):
        raise UnusableCheckpoint(
            f"{path}: {name} is of type {kind}, as in a quantized model, and would be read as "
            "other numbers than it means: give the model as it was before, in float32, float16 or "
            "bfloat16. `offramp export --precision int8` quantizes it"
        )


def _check_not_packed(path: Path) -> None:
    """Refuse an archive that PyTorch would unpack into more than it is; it writes none."""
    try:
        with zipfile.ZipFile(path) as archive:
            packed = any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist())
    except (zipfile.BadZipFile, OSError) as error:
        raise UnusableCheckpoint(f"{path} cannot be read: {error}") from None
    if packed:
        raise UnusableCheckpoint(f"{path} is a compressed archive: torch.save writes plain ones")


def _without_wrapper(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights under the names that their model has today.

    A first part that all names share, such as `module` or `model`, is of what the model was wrapped
    in when it was saved: DataParallel, a LightningModule, a class with the model as an attribute.
    """
    named = {_COMPILED.sub("", key): tensor for key, tensor in tensors.items()}
    while prefix := _shared_prefix(
        key for key in named if "." in key and not OF_TRAINING.match(key)
    ):
        named = {key.removeprefix(prefix): tensor for key, tensor in named.items()}
    return {_modern_name(key): tensor for key, tensor in named.items()}


def _shared_prefix(names: Iterable[str]) -> str:
    """Return the first part that all names share, with its dot; empty if it is an encoder's.

    An encoder's name is a wrapper's where an encoder's follows: `self.bert = a whole classifier`.
    """
    parts = {tuple(name.split(".")[:2]) for name in names}
    first = {each[0] for each in parts}
    if len(first) != 1:
        return ""
    follows = any(_ENCODER.fullmatch(second) for _, second in parts)
    shared = first.pop()
    return f"{shared}." if follows or not _ENCODER.fullmatch(shared) else ""


def _modern_name(key: str) -> str:
    """Return the name that transformers uses today for a layer norm's weights."""
    return re.sub(
        r"(LayerNorm)\.gamma$", r"\1.weight", re.sub(r"(LayerNorm)\.beta$", r"\1.bias", key)
    )


def _float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
