"""The bundle's files: graphs and weights, copies from the model folder, hashes."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from export.chain.joined import join_segments
from export.chain.weights import WeightsFile
from models.quality.trained import TRAINED
from serve.bundle.loader import MANIFEST, TOKENIZER, sha256_of
from serve.bundle.manifest import WEIGHTS, Manifest
from serve.bundle.recording import (
    MOST_CERTIFYING_BYTES,
    RECORDING,
    certifying_files,
    read_recording,
)
from serve.policy.ladder import Ladder

_HEADER_BYTES = 4096  # of a `.npy` file, or less


def segment_path(precision: str, exit_layer: int) -> str:
    """Return a segment's path inside the bundle."""
    return f"segments/{precision}/{exit_layer:02d}.onnx"


def head_path(precision: str, exit_layer: int) -> str:
    """Return the path of the graph of an exit head alone inside the bundle."""
    return f"segments/{precision}/{exit_layer:02d}.head.onnx"


def joined_path(precision: str) -> str:
    """Return the path of a variant's joined graph inside the bundle."""
    return f"segments/{precision}/joined.onnx"


def weights_path(precision: str) -> str:
    """Return the path of a variant's weights inside the bundle."""
    return f"segments/{precision}/{WEIGHTS}"


def save_segment(model: ir.Model, path: Path, weights: WeightsFile) -> None:
    """Write a segment, and its weights into the variant's file."""
    weights.take_in(model)
    ir.save(model, path)


def save_joined(segments: Iterable[Path], path: Path) -> None:
    """Join segments that have been written; the new graph refers to the same weights."""
    ir.save(join_segments([ir.load(segment) for segment in segments]), path)


def write_model_files(model_folder: Path, tokenizer: str, folder: Path) -> None:
    """Write the tokenizer, and copy the model's card, which may state terms of use.

    So is what tells texts of the training from others.
    """
    (folder / TOKENIZER).write_text(tokenizer, "utf-8")
    for name, copied in (("README.md", "MODEL.md"), (TRAINED, TRAINED)):
        if (model_folder / name).is_file():
            shutil.copyfile(model_folder / name, folder / copied)


def copy_recording(
    model_folder: Path, folder: Path, kept: Sequence[int], shape: tuple[int, int]
) -> None:
    """Copy the recorded logits of the calibration data, if there are any.

    Args:
        model_folder: written by `offramp train`.
        folder: the bundle's folder.
        kept: the exported ones of the model's exits, counted from 0.
        shape: (exits, labels) of the model.

    Raises:
        InvalidBundle: the recording is damaged or of another model.
    """
    path = model_folder / RECORDING
    if path.is_file():
        np.save(folder / RECORDING, read_recording(path, shape)[list(kept)])


def copy_certifying(model_folder: Path, folder: Path, ladders: Iterable[Ladder]) -> None:
    """Copy what the exits said of the texts that certify ladders, as far as it was kept."""
    for ladder in ladders:
        for name in certifying_files(ladder).values():
            path = model_folder / name
            if path.is_file() and path.stat().st_size <= MOST_CERTIFYING_BYTES + _HEADER_BYTES:
                shutil.copyfile(path, folder / name)


def hashes(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file in the folder except the manifest, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: sha256_of(path) for name, path in named.items() if name != MANIFEST}


def sizes_of(folder: Path, manifest: Manifest) -> dict[str, int]:
    """Return how many bytes the graphs and the weights of each variant take."""
    files = {p: (folder / "segments" / p).iterdir() for p in manifest.variants}
    return {p: sum(path.stat().st_size for path in paths) for p, paths in files.items()}
