"""Puts together what one process serves with: models, their metrics, and the app's context."""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from serve.access.gate import Gate
from serve.access.held_bytes import HeldBytes
from serve.access.proxies import TrustedProxies
from serve.api.access import Access
from serve.api.app import HttpApp
from serve.api.context import AppContext
from serve.api.model_loading import ModelChanges
from serve.api.replicas import Replicas
from serve.bundle.loader import Bundle, load_bundle, load_bundles
from serve.bundle.pins import check_pin, check_pins, check_unchanged
from serve.bundle.repository import Repository
from serve.classifier.catalog import Catalog
from serve.classifier.classifier import Classifier
from serve.classifier.model_switch import ModelSwitch
from serve.classifier.options import EngineOptions
from serve.config import ServerConfig
from serve.dialects.registry import choose_dialects
from serve.errors import InvalidBundle, InvalidRequest, LoadFailed, OfframpError, Unavailable
from serve.http.settings import ConnectionState
from serve.logs import fields
from serve.metrics.metrics import Metrics, in_front
from serve.policy.model_set import ServedBundle, same_deployment
from serve.policy.store import Store
from serve.runtime.placement import place
from serve.runtime.process_memory import available_bytes
from serve.tracing import configured_tracing

log = logging.getLogger(__name__)

# Layers of the deepest usual encoders, of which models may come while the server runs.
_DEEPEST: Final = 24
# Loading takes this beside the weights, which are there twice for a while: as they are read, and as
# kernels pack them.
_LOADING_BYTES: Final = 64 << 20


class Assembly:
    """The models of one process; it loads further ones.

    Attributes:
        metrics: count what models do.
        catalog: the models that are served from the start.
        stopping: tells whether the process ends, and no further model need be loaded.
    """

    def __init__(
        self,
        bundles: Sequence[Bundle],
        options: EngineOptions,
        store: Store,
        active_exits: Mapping[str, Sequence[int]],
        depth: int = 1,
    ) -> None:
        """Load and warm up verified bundles; the engines are not started yet.

        Args:
            bundles: with their active exits.
            options: how models are run.
            store: where live policies are kept.
            active_exits: exit layers to use, by model; a model that is not listed uses all.
            depth: layers of the deepest model that may come later.

        Raises:
            InvalidBundle: a bundle cannot be loaded, or was replaced meanwhile.
            DeviceUnavailable: a bundle lacks the wanted precision.
        """
        self._options, self._store, self._active = options, store, active_exits
        # The library's own threads would come on top of these, and of those that run the model.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._pool = ThreadPoolExecutor(options.tokenizer_threads, thread_name_prefix="tokenizer")
        self.metrics = Metrics(max((depth, *(each.manifest.exit_layers[-1] for each in bundles))))
        self.catalog = Catalog([self._open(bundle) for bundle in bundles])
        self.metrics.watch(self.catalog)
        self.stopping: Callable[[], bool] = lambda: False

    def verify(self, folder: str | Path) -> None:
        """Check every file of a bundle.

        Raises:
            LoadFailed: one is missing or damaged.
        """
        try:
            load_bundle(folder, self.stopping)
        except Unavailable:
            raise
        except (OfframpError, OSError) as error:
            raise LoadFailed.of(error, folder) from None

    def load(self, name: str, folder: str | Path, sha256: str | None = None) -> Classifier:
        """Return a further model under a name, loaded and warmed up.

        Raises:
            OfframpError: what is wrong; it names no folder but the bundle's own.
        """
        try:
            bundle = replace(load_bundle(folder, self.stopping), name=name)
            if sha256:
                check_pin(bundle, sha256)
            bundle = _presenting(bundle, self._active)
            self._check_memory(bundle)
            return self._open(bundle)
        except MemoryError:
            raise LoadFailed("there is not enough memory") from None
        except Unavailable:
            raise
        except (OfframpError, OSError) as error:
            raise LoadFailed.of(error, folder) from None

    def _open(self, bundle: Bundle) -> Classifier:
        observer = self.metrics.observer(bundle.name, bundle.manifest.traits)
        of_small = None
        if bundle.small:
            small = bundle.small.manifest.traits.bare
            of_small = self.metrics.observer(in_front(bundle.name), small)
        classifier = Classifier(bundle, self._options, self._store, observer, self._pool, of_small)
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

    def _check_memory(self, bundle: Bundle) -> None:
        device, precision = place(bundle, self._options.device, self._options.precision)
        free = available_bytes() if device == "cpu" else None
        models = [each for each in (bundle, bundle.small) if each]
        weights = sum(each.weights_path(precision).stat().st_size for each in models)
        needed = 2 * weights + _LOADING_BYTES
        if free is not None and needed > free:
            raise LoadFailed(
                f"{bundle.folder} takes about {needed >> 20} MiB while it is loaded, and "
                f"{free >> 20} MiB are free; unload another model first"
            )


def assemble(
    folders: Sequence[str | Path],
    options: EngineOptions,
    store: Store,
    active_exits: Mapping[str, Sequence[int]] | None = None,
    pins: Mapping[str, str] | None = None,
) -> Assembly:
    """Load and warm up bundles, each under its folder's name, as `verified_bundles` and `Assembly`.

    Raises:
        OfframpError: what is wrong with a bundle, an active exit or a pin.
    """
    active = active_exits or {}
    return Assembly(verified_bundles(folders, active, pins or {}), options, store, active)


def assemble_served(config: ServerConfig, store: Store) -> Assembly:
    """Load the models that were served last under the same config, or else those of the config.

    Raises:
        OfframpError: as `assemble`, or the store does not answer.
    """
    active, bundles = config.active_exits, served_before(config, store)
    if bundles is None:
        bundles = verified_bundles(config.bundles, active, config.bundle_sha256)
    else:
        names = ", ".join(each.name for each in bundles)
        log.info("served again are the models of before: %s", names or "none")
    return Assembly(bundles, config, store, active, _DEEPEST if config.model_repository else 1)


def served_before(config: ServerConfig, store: Store) -> list[Bundle] | None:
    """Return the models that were served last under the same config, if any were.

    Raises:
        OfframpError: the store does not answer, or a bundle is not there any more.
    """
    found = store.model_set()
    if found is None or not same_deployment(found.baseline, config.baseline()):
        return None
    return [_served(name, each, config.active_exits) for name, each in found.models.items()]


def _served(name: str, served: ServedBundle, active: Mapping[str, Sequence[int]]) -> Bundle:
    """Return a bundle that was served when the server ended.

    Raises:
        InvalidBundle: it is not there any more; what can be done.
    """
    try:
        place = served.place if Path(served.place).exists() else served.folder
        bundle = replace(load_bundle(place), name=name, given=Path(served.folder))
        if bundle.sha256 != served.sha256:
            raise InvalidBundle(
                f"{bundle.folder}: holds another bundle now: the sha256 of its manifest is "
                f"{bundle.sha256}, and was {served.sha256}"
            )
    except InvalidBundle as error:
        raise InvalidBundle(
            f"the model {name} was served before and cannot be now: {error}. Put its bundle back, "
            "or have a replica that runs unload it; or run `sqlite3 DIR/offramp.db 'DELETE FROM "
            "model_sets'` in the folder of --state, to start from the bundles that are named"
        ) from None
    return _presenting(bundle, active)


def verified_bundles(
    folders: Sequence[str | Path], active: Mapping[str, Sequence[int]], pins: Mapping[str, str]
) -> list[Bundle]:
    """Return bundles with their active exits, every file verified.

    Args:
        folders: the bundles' folders.
        active: exit layers to use, by model.
        pins: the bundles that these must be, see `serve.bundle.pins`.

    Raises:
        InvalidBundle: a bundle cannot be loaded, is not the pinned one, or two have the same name.
        InvalidRequest: an active exit, or the model it is given for, does not exist.
    """
    bundles = load_bundles(folders)
    check_pins(bundles, pins)
    names = [bundle.name for bundle in bundles]
    unknown = sorted(active.keys() - set(names))
    if unknown:
        raise InvalidRequest(
            f"active exits of {unknown[0]!r}: no such model; there is {', '.join(names)}"
        )
    return [_presenting(bundle, active) for bundle in bundles]


def _presenting(bundle: Bundle, active: Mapping[str, Sequence[int]]) -> Bundle:
    """Return a bundle with its active exits.

    Raises:
        InvalidRequest: it lacks one of them.
    """
    return bundle.presenting(active[bundle.name]) if bundle.name in active else bundle


def app_context(
    config: ServerConfig,
    assembly: Assembly,
    replicas: Replicas,
    connections: ConnectionState,
    switch: ModelSwitch,
) -> AppContext:
    """Return what the HTTP app works with.

    Raises:
        InvalidKeys: the file of keys cannot be used.
        InvalidRequest: a trusted proxy is no address.
    """
    gate = Gate(config.keys, lambda: replicas.number)
    answers = HeldBytes(config.max_buffered_bytes, "answers")
    assembly.metrics.answers.append(answers)
    assembly.stopping = lambda: connections.stopping
    return AppContext(
        assembly.catalog,
        assembly.metrics,
        replicas,
        config,
        Access(gate, config.allowed_hosts, config.open_metrics, config.cors_origins),
        TrustedProxies(config.trusted_proxies),
        tuple(config.cors_origins),
        config.access_log,
        configured_tracing(),
        connections,
        bodies=HeldBytes(config.max_buffered_bytes, "bodies"),
        answers=answers,
        changes=ModelChanges(switch, replicas, Repository(config.bundles, config.model_repository)),
    )


def http_app(
    config: ServerConfig,
    context: AppContext,
    stop_first: Callable[[], Awaitable[None]] | None = None,
) -> HttpApp:
    """Return the app, which speaks the config's dialects.

    Raises:
        InvalidRequest: there is no such dialect.
    """
    return HttpApp(context, choose_dialects(config.dialects), stop_first)
