"""Puts together what one process serves with: classifiers, metrics, guard."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from serve.access.gate import Gate
from serve.access.held_bytes import HeldBytes
from serve.access.proxies import TrustedProxies
from serve.api.access import Guard
from serve.api.app import HttpApp
from serve.api.context import AppContext
from serve.api.model_changes import ModelChanges
from serve.api.replicas import Replicas
from serve.bundle.loader import Bundle, load_bundle, load_bundles
from serve.bundle.pins import check_pins
from serve.bundle.repository import Repository
from serve.classifier.catalog import Catalog
from serve.classifier.model_switch import ModelSwitch
from serve.classifier.options import EngineOptions
from serve.config import ServerConfig
from serve.dialects.registry import choose_dialects
from serve.errors import InvalidBundle, InvalidRequest
from serve.http.model_loader import ModelLoader
from serve.http.settings import ConnectionState
from serve.http.tls import TlsFiles
from serve.metrics.metrics import Metrics
from serve.policy.model_set import ServedBundle, same_deployment
from serve.policy.store import Store
from serve.tracing import configured_tracing

log = logging.getLogger(__name__)

# Layers of the deepest usual encoders, of which models may come while the server runs.
_DEEPEST: Final = 24


@dataclass(frozen=True, slots=True)
class Assembly:
    """Models, their metrics, and what loads others."""

    catalog: Catalog
    metrics: Metrics
    loader: ModelLoader


def assemble(
    folders: Sequence[str | Path],
    options: EngineOptions,
    store: Store,
    active_exits: Mapping[str, Sequence[int]] | None = None,
    pins: Mapping[str, str] | None = None,
) -> Assembly:
    """Load, verify and warm up bundles; the engines are not started yet.

    Args:
        folders: bundles; each is served under its folder's name.
        options: how models are run.
        store: where live policies are kept.
        active_exits: exit layers to use, by model; a model that is not listed uses all.
        pins: the bundles that these must be, see `serve.bundle.pins`.

    Raises:
        InvalidBundle: a bundle cannot be loaded, is not the pinned one, or two have the same name.
        DeviceUnavailable: a bundle lacks the wanted precision.
        InvalidRequest: an active exit, or the model it is given for, does not exist.
    """
    bundles = verified_bundles(folders, active_exits or {}, pins or {})
    return _opened(bundles, options, store, active_exits or {})


def assemble_served(config: ServerConfig, store: Store) -> Assembly:
    """Load the models that were served last under the same config, or else those of the config.

    Raises:
        OfframpError: as `assemble`, or the store does not answer.
    """
    active, found = config.active_exits, store.model_set()
    if found and same_deployment(found.baseline, config.baseline()):
        bundles = [_served(name, each, active) for name, each in found.models.items()]
        log.info("served again are the models of before: %s", ", ".join(found.models) or "none")
    else:
        bundles = verified_bundles(config.bundles, active, config.bundle_sha256)
    depth = _DEEPEST if config.model_repository else 1
    return _opened(bundles, config, store, active, depth)


def _served(name: str, served: ServedBundle, active: Mapping[str, Sequence[int]]) -> Bundle:
    """Return a bundle that was served when the server ended.

    Raises:
        InvalidBundle: it is not there any more; what can be done.
    """
    try:
        bundle = replace(load_bundle(served.folder), name=name)
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
    return bundle.presenting(active[name]) if name in active else bundle


def _opened(
    bundles: Sequence[Bundle],
    options: EngineOptions,
    store: Store,
    active_exits: Mapping[str, Sequence[int]],
    depth: int = 1,
) -> Assembly:
    metrics = Metrics(max((depth, *(bundle.manifest.exit_layers[-1] for bundle in bundles))))
    loader = ModelLoader(options, store, active_exits, metrics)
    catalog = Catalog([loader.open(bundle) for bundle in bundles])
    metrics.watch(catalog)
    return Assembly(catalog, metrics, loader)


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
    return AppContext(
        assembly.catalog,
        assembly.metrics,
        replicas,
        config,
        Guard(gate, config.allowed_hosts, config.open_metrics, config.cors_origins),
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


def tls_files(config: ServerConfig) -> TlsFiles | None:
    """Return the files for TLS; None for plain HTTP.

    Raises:
        InvalidRequest: one of certificate and key is missing.
    """
    if not (config.tls_cert or config.tls_key or config.tls_client_ca):
        return None
    if not (config.tls_cert and config.tls_key):
        raise InvalidRequest("TLS needs a certificate and its key: --tls-cert and --tls-key")
    return TlsFiles(config.tls_cert, config.tls_key, config.tls_client_ca)


def verified_bundles(
    folders: Sequence[str | Path], active: Mapping[str, Sequence[int]], pins: Mapping[str, str]
) -> list[Bundle]:
    """Return bundles with their active exits, every file verified.

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
    return [b.presenting(active[b.name]) if b.name in active else b for b in bundles]
