"""The random model's bundle, built again only when settings or the exporter change."""

import hashlib
import json
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from loadtest.bench.engine import random_model
from loadtest.bench.engine.bars import Report
from loadtest.bench.engine.settings import ModelSettings
from loadtest.bench.errors import BenchFailed
from serve.bundle import manifest
from serve.bundle.loader import Bundle, load_bundle

_PRECISIONS = "fp32,int8"
# A bundle's content depends on their code or version.
_OUR_PACKAGES = ("export", "models")
_LIBRARIES = ("onnx-ir", "onnxscript", "torch", "transformers")


def cached_bundle(settings: ModelSettings, cache: Path, report: Report) -> Bundle:
    """Return the bundle, fp32 and int8, exported to the cache unless it is there already.

    Args:
        settings: of the model.
        cache: a folder of such bundles, with a key file beside each.
        report: called with the name of the current step.

    Raises:
        BenchFailed: the model could not be written or exported.
    """
    folder, key_file = cache / settings.name, cache / f"{settings.name}.key"
    key = key_of(settings)
    if not (key_file.is_file() and key_file.read_text() == key):
        key_file.unlink(missing_ok=True)
        _build(settings, folder, report)
        key_file.write_text(key)
    report(f"{settings.name}: reading")
    return load_bundle(folder)


def key_of(settings: ModelSettings) -> str:
    """Return a hash of everything that the bundle's content depends on."""
    digest = hashlib.sha256(json.dumps([asdict(settings), _PRECISIONS]).encode())
    for path in (Path(random_model.__file__), Path(manifest.__file__), *_sources()):
        digest.update(path.read_bytes())
    for library in _LIBRARIES:
        digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    for package in _OUR_PACKAGES:
        found = find_spec(package)
        for place in (found and found.submodule_search_locations) or ():
            yield from sorted(Path(place).rglob("*.py"))


def _build(settings: ModelSettings, folder: Path, report: Report) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{settings.name}-") as model:
        report(f"{settings.name}: drawing weights")
        _run(random_model.arguments(settings, Path(model)))
        report(f"{settings.name}: exporting, a minute or two")
        offramp = str(Path(sysconfig.get_path("scripts")) / "offramp")
        _run([offramp, "export", model, "--out", str(folder), "--precision", _PRECISIONS])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(f"the model for the bench cannot be made:\n{done.stderr.strip()[-2000:]}")
