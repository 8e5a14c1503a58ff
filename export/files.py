"""The bundle's files: graphs, tokenizer, recording, hashes, sizes."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from serve.bundle.loader import MANIFEST, TOKENIZER, sha256_of
from serve.bundle.manifest import Manifest
from serve.bundle.recording import RECORDING

# A protobuf message holds at most 2 GiB. Larger weights go into a file beside the graph.
MAX_INLINE_BYTES = 1_500_000_000


def segment_path(precision: str, exit_layer: int) -> str:
    """Return a segment's path inside the bundle."""
    return graph_path(precision, f"{exit_layer:02d}")


def graph_path(precision: str, stem: str) -> str:
    """Return the path of any graph of a variant inside the bundle."""
    return f"segments/{precision}/{stem}.onnx"


def save_segment(model: ir.Model, path: Path, max_inline_bytes: int = MAX_INLINE_BYTES) -> None:
    """Write a segment; weights too large for one file go into `NN.onnx.data`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = (value.const_value for value in model.graph.initializers.values())
    large = sum(tensor.nbytes for tensor in weights if tensor is not None) > max_inline_bytes
    ir.save(model, path, external_data=f"{path.name}.data" if large else None)


def write_model_files(model_folder: Path, tokenizer: str, folder: Path) -> None:
    """Write the tokenizer, and copy the model's card, which may state terms of use."""
    (folder / TOKENIZER).write_text(tokenizer, "utf-8")
    if (model_folder / "README.md").is_file():
        shutil.copyfile(model_folder / "README.md", folder / "MODEL.md")


def copy_recording(model_folder: Path, folder: Path, kept: Sequence[int]) -> None:
    """Copy the recorded logits of the calibration data, if there are any.

    Args:
        model_folder: written by `offramp train` or `offramp evaluate`.
        folder: the bundle's folder.
        kept: the exported ones of the model's exits, counted from 0.
    """
    path = model_folder / RECORDING
    if path.is_file():
        np.save(folder / RECORDING, np.load(path, allow_pickle=False)[list(kept)])


def hashes(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file in the folder except the manifest, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: sha256_of(path) for name, path in named.items() if name != MANIFEST}


def sizes_of(folder: Path, manifest: Manifest) -> dict[str, int]:
    """Return the size of each variant's graphs in bytes."""
    files = {p: (folder / "segments" / p).rglob("*.onnx*") for p in manifest.variants}
    return {p: sum(path.stat().st_size for path in paths) for p, paths in files.items()}
