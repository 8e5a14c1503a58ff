"""Puts together what one process serves with: classifiers, metrics, guard."""

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from serve.access.gate import Gate
from serve.access.proxies import TrustedProxies
from serve.api.access import Guard
from serve.api.context import AppContext
from serve.api.replicas import Replicas
from serve.api.unsent import UnsentAnswers
from serve.bundle.loader import Bundle, load_bundles
from serve.bundle.pins import check_pins, check_unchanged
from serve.classifier.catalog import Catalog
from serve.classifier.classifier import Classifier
from serve.classifier.options import EngineOptions
from serve.config import ServerConfig
from serve.dialects.registry import choose_dialects
from serve.errors import InvalidRequest
from serve.http.tls import TlsFiles
from serve.logs import fields
from serve.metrics.collectors import Metrics
from serve.metrics.connections import ConnectionState
from serve.policy.store import Store
from serve.tracing import configured_tracing

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Assembly:
    """Models and their metrics."""

    catalog: Catalog
    metrics: Metrics


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
    metrics = Metrics({b.name: b.manifest.exit_layers for b in bundles})
    # The library's own threads would come on top of these, and of those that run the model.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    pool = ThreadPoolExecutor(options.tokenizer_threads, thread_name_prefix="tokenizer")
    catalog = Catalog(
        [Classifier(b, options, store, metrics.observer(b.name), pool) for b in bundles]
    )
    for classifier in catalog:
        check_unchanged(classifier.bundle)
        _log_loaded(classifier)
    metrics.watch(catalog)
    return Assembly(catalog, metrics)


def app_context(
    config: ServerConfig, assembly: Assembly, replicas: Replicas, connections: ConnectionState
) -> AppContext:
    """Return what the HTTP app works with.

    Raises:
        InvalidKeys: the file of keys cannot be used.
        InvalidRequest: a trusted proxy is no address.
    """
    gate = Gate(config.keys, lambda: replicas.number)
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
        choose_dialects(config.dialects),
        connections,
        unsent=UnsentAnswers(config.max_buffered_bytes, connections),
    )


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


def _log_loaded(classifier: Classifier) -> None:
    bundle = classifier.bundle
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
