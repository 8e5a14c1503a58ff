"""Loads the models of one process, at its start and later."""

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.pins import check_pin, check_unchanged
from serve.classifier.classifier import Classifier
from serve.classifier.options import EngineOptions
from serve.errors import LoadFailed, OfframpError
from serve.logs import fields
from serve.metrics.metrics import Metrics
from serve.policy.store import Store
from serve.runtime.placement import place
from serve.runtime.process_memory import available_bytes

log = logging.getLogger(__name__)

# Beside the weights, which are there twice for a while: as they are read, and as kernels pack them.
_LOADING_BYTES: Final = 64 << 20


class ModelLoader:
    """Makes classifiers of bundles."""

    def __init__(
        self,
        options: EngineOptions,
        store: Store,
        active_exits: Mapping[str, Sequence[int]],
        metrics: Metrics,
    ) -> None:
        """Take what all models of the process share.

        Args:
            options: how models are run.
            store: where live policies are kept.
            active_exits: exit layers to use, by model; a model that is not listed uses all.
            metrics: count what models do.
        """
        self._options, self._store, self._metrics = options, store, metrics
        self._active = active_exits
        # The library's own threads would come on top of these, and of those that run the model.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._pool = ThreadPoolExecutor(options.tokenizer_threads, thread_name_prefix="tokenizer")

    def open(self, bundle: Bundle) -> Classifier:
        """Load and warm up a verified bundle with its active exits; the engine is not started yet.

        Raises:
            InvalidBundle: it cannot be loaded, or was replaced meanwhile.
            DeviceUnavailable: it lacks the wanted precision.
        """
        observer = self._metrics.observer(bundle.name, bundle.manifest.exit_layers)
        classifier = Classifier(bundle, self._options, self._store, observer, self._pool)
        check_unchanged(bundle)
        log.info(
            "model loaded",
            extra=fields(
                model=classifier.name,
                bundle=bundle.sha256,
                folder=str(bundle.folder),
                device=classifier.device,
                precision=classifier.precision,
            ),
        )
        return classifier

    def verified(self, name: str, folder: str | Path, sha256: str | None = None) -> Bundle:
        """Return a bundle that may be opened beside the models that there are, under a name.

        Raises:
            InvalidBundle: it cannot be loaded, or is not the one with this sha256.
            DeviceUnavailable: it lacks the wanted precision.
            InvalidRequest: it lacks an active exit.
            LoadFailed: there is not enough memory.
        """
        bundle = replace(load_bundle(folder), name=name)
        if sha256:
            check_pin(bundle, sha256)
        if name in self._active:
            bundle = bundle.presenting(self._active[name])
        self._check_memory(bundle)
        return bundle

    def load(self, name: str, folder: str | Path, sha256: str | None = None) -> Classifier:
        """Return a loaded and warmed model, as `verified` and `open`.

        Raises:
            OfframpError: what is wrong; it names no folder but the bundle's own.
        """
        try:
            bundle = self.verified(name, folder, sha256)
            return self.open(bundle)
        except MemoryError:
            raise LoadFailed("there is not enough memory") from None
        except (OfframpError, OSError) as error:
            raise LoadFailed.of(error, folder) from None

    def _check_memory(self, bundle: Bundle) -> None:
        device, precision = place(bundle, self._options.device, self._options.precision)
        free = available_bytes() if device == "cpu" else None
        needed = 2 * bundle.weights_path(precision).stat().st_size + _LOADING_BYTES
        if free is not None and needed > free:
            raise LoadFailed(
                f"{bundle.folder} takes about {needed >> 20} MiB while it is loaded, and "
                f"{free >> 20} MiB are free; unload another model first"
            )
