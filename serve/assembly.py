"""From bundles on disk to everything one process serves."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from serve.bundle import load_bundles
from serve.catalog import Catalog
from serve.classifier import Classifier, EngineOptions
from serve.control import PolicyStore
from serve.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Assembly:
    """Models, and the metrics that watch them."""

    catalog: Catalog
    metrics: Metrics


def assemble(folders: Sequence[str | Path], options: EngineOptions, store: PolicyStore) -> Assembly:
    """Load, verify and warm bundles; their engines are not started yet.

    Args:
        folders: bundles; each is served under its folder's name.
        options: how models are run.
        store: where live policies are kept.

    Raises:
        InvalidBundle: a bundle cannot be loaded, or two have the same name.
        DeviceUnavailable: a bundle lacks the wanted precision.
    """
    bundles = load_bundles(folders)
    metrics = Metrics({b.name: b.manifest.exit_layers for b in bundles})
    catalog = Catalog([Classifier(b, options, store, metrics.observer(b.name)) for b in bundles])
    metrics.watch(catalog)
    return Assembly(catalog, metrics)
