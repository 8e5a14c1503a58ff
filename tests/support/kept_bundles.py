"""Exports that outlive the test run, for as long as what makes them stays as it is."""

import fcntl
import hashlib
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "test-bundles"
_CODE = (
    "export/**/*.py",
    "models/*.py",
    "models/encoders/*.py",
    "serve/bundle/*.py",
    "serve/policy/*.py",
    "serve/rules/**/*.py",
    "tests/support/*.py",
)
_LIBRARIES = ("numpy", "onnx", "onnxscript", "tokenizers", "torch", "transformers")


def kept_folder(name: str, write: Callable[[Path], object]) -> Path:
    """Return a folder that `write` has filled, with a bundle, if no earlier run has kept it.

    One process writes while others wait. What a run that was stopped has left is not used.
    """
    folder = KEPT / _digest()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / name).exists():
            with tempfile.TemporaryDirectory(dir=folder) as unfinished:
                write(Path(unfinished) / name)
                (Path(unfinished) / name).rename(folder / name)
    return folder / name


@cache
def _digest() -> str:
    """Return a hash of the code and the libraries that bundles depend on."""
    found = hashlib.sha256()
    for library in _LIBRARIES:
        found.update(f"{library} {version(library)}\n".encode())
    for file in sorted(file for pattern in _CODE for file in ROOT.glob(pattern)):
        found.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return found.hexdigest()[:16]
