"""The files of a model folder, which may have come from anywhere.

`check_files` is called before anything in a folder is read, by this project or by transformers.
"""

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

from models.errors import UnusableCheckpoint
from serve.bounded_file import UnfitFile, read_file

CONFIG = "config.json"
# What a clone without Git LFS has in place of a large file.
_LFS, _FETCHED_LATE = (
    b"version https://git-lfs",
    (".bin", ".json", ".model", ".safetensors", ".txt"),
)
_MIB = 1 << 20
# transformers reads these with every tokenizer.
_TEMPLATES, _OTHER_TEMPLATES, _MOST_TEMPLATE = "*.jinja", "additional_chat_templates/*.jinja", _MIB
# What is read whole, with the most bytes. A tokenizer of 250,000 tokens has 17 MB.
_MOST_BYTES = {
    CONFIG: 4 * _MIB,
    "README.md": 4 * _MIB,
    "adapter_config.json": 4 * _MIB,
    "added_tokens.json": 4 * _MIB,
    "calibration.json": 8 * _MIB,
    "generation_config.json": 4 * _MIB,
    "merges.txt": 64 * _MIB,
    "model.safetensors.index.json": 64 * _MIB,
    "policy.json": 4 * _MIB,
    "pytorch_model.bin.index.json": 64 * _MIB,
    "recording.npy": 1024 * _MIB,
    "sentencepiece.bpe.model": 64 * _MIB,
    "special_tokens_map.json": 4 * _MIB,
    "spiece.model": 64 * _MIB,
    "spm.model": 64 * _MIB,
    "table.json": 4 * _MIB,
    "table.npy": 64 * _MIB,
    "tekken.json": 64 * _MIB,
    "tiktoken.model": 64 * _MIB,
    "tokenizer.json": 64 * _MIB,
    "tokenizer.model": 64 * _MIB,
    "tokenizer_config.json": 64 * _MIB,
    "vocab.json": 64 * _MIB,
    "vocab.txt": 64 * _MIB,
}


def check_files(folder: Path) -> None:
    """Check that what lies in a model folder is its own, and is not larger than it may be.

    Links may lead to files of the folder. In a cache of the Hugging Face hub they may also lead
    to the `blobs` of the same model.

    Raises:
        UnusableCheckpoint: there is no such folder, a link leads elsewhere, or a file is too large
            or no regular file.
    """
    if not folder.is_dir():
        raise UnusableCheckpoint(f"{folder}: no such folder")
    templates = {*folder.glob(_TEMPLATES), *folder.glob(_OTHER_TEMPLATES)}
    for path in sorted({*folder.iterdir(), *templates}):
        if path in templates or (path.is_symlink() and not path.is_dir()):
            locate(folder, str(path.relative_to(folder)))
        if path.name.endswith(_FETCHED_LATE) and path.is_file():
            _check_fetched(path)
        most = _MOST_TEMPLATE if path in templates else _MOST_BYTES.get(path.name)
        if most is not None and path.exists():
            _check_size(path, path.stat(), most)


def locate(folder: Path, name: str) -> Path:
    """Return where a file of a model folder lies; it need not exist.

    Raises:
        UnusableCheckpoint: it lies outside.
    """
    try:
        path = (folder / name).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links; a NUL
        path = Path("/")
    if not any(path.is_relative_to(root) for root in _roots(folder)):
        raise UnusableCheckpoint(
            f"{folder}/{name} lies outside the model's folder; copy the file into the folder if it "
            "belongs there"
        )
    return path


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Return the object in a JSON file of a model folder; empty if there is no such file.

    Raises:
        UnusableCheckpoint: it is not JSON, or holds something else than an object.
    """
    path = folder / name
    if not path.exists():
        return {}
    try:
        content = read_file(path, _MOST_BYTES[name])
        found = json.loads(content, parse_constant=_refuse, parse_float=_finite)
        json.dumps(found, ensure_ascii=False).encode()  # half of a character has no encoding
    except RecursionError:
        raise UnusableCheckpoint(f"{path} is not JSON: it is nested too deeply") from None
    except (UnfitFile, OSError) as error:
        raise UnusableCheckpoint(f"{path} cannot be read: {error}") from None
    except ValueError as error:
        raise UnusableCheckpoint(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnusableCheckpoint(f"{path}: expected a JSON object")
    return found


def _roots(folder: Path) -> list[Path]:
    """Return the folders in which the files may lie."""
    own = folder.resolve()
    # models--name/snapshots/revision/config.json -> ../../blobs/hash
    cached = own.parent.name == "snapshots"
    return [own, *([own.parent.parent / "blobs"] if cached else [])]


def _check_fetched(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(len(_LFS)) == _LFS:
            raise UnusableCheckpoint(
                f"{path} is a pointer of Git LFS, and not the file itself: run `git lfs pull` in "
                "the folder, or download the file"
            )


def _check_size(path: Path, status: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnusableCheckpoint(f"{path} is no regular file")
    if status.st_size > most:
        raise UnusableCheckpoint(f"{path} has {status.st_size} bytes; at most {most} are read")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is too large")
    return value
