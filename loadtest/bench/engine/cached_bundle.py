"""The random model's bundle, built again only when settings or the exporter change."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from loadtest.bench.engine import random_model
from loadtest.bench.engine.bars import Report
from loadtest.bench.engine.settings import ModelSettings
from serve.bundle import manifest
from serve.bundle.loader import Bundle, load_bundle

_PRECISIONS = ("fp32", "int8")
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
        report(f"{settings.name}: drawing weights and exporting, a minute or two")
        random_model.build(settings, _PRECISIONS, folder)
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
