"""The bundle's files: segments, copies from the model folder, hashes."""

import shutil
from pathlib import Path

import onnx_ir as ir

from serve.bundle import MANIFEST, TOKENIZER, sha256_of
from serve.manifest import Manifest

# A protobuf message holds at most 2 GiB; weights beyond this go into a file beside the graph.
MAX_INLINE_BYTES = 1_500_000_000


def segment_path(precision: str, exit_layer: int) -> str:
    """Return a segment's path inside the bundle."""
    return f"segments/{precision}/{exit_layer:02d}.onnx"


def save_segment(model: ir.Model, path: Path, max_inline_bytes: int = MAX_INLINE_BYTES) -> None:
    """Write a segment; its weights into `NN.onnx.data` only if they are too large for one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = (value.const_value for value in model.graph.initializers.values())
    large = sum(tensor.nbytes for tensor in weights if tensor is not None) > max_inline_bytes
    ir.save(model, path, external_data=f"{path.name}.data" if large else None)


def copy_model_files(model_folder: Path, folder: Path) -> None:
    """Copy the tokenizer, and the model's own card, which may state terms of use."""
    shutil.copyfile(model_folder / TOKENIZER, folder / TOKENIZER)
    if (model_folder / "README.md").is_file():
        shutil.copyfile(model_folder / "README.md", folder / "MODEL.md")


def hashes(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file in the folder but the manifest, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: sha256_of(path) for name, path in named.items() if name != MANIFEST}


def sizes_of(folder: Path, manifest: Manifest) -> dict[str, int]:
    """Return how many bytes the segments of each variant take."""
    return {
        precision: sum(path.stat().st_size for path in (folder / "segments" / precision).iterdir())
        for precision in manifest.variants
    }
