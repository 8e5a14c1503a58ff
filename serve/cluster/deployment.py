"""The Ray Serve application."""

from pathlib import Path
from typing import Any

import ray
from ray import serve as ray_serve
from ray.serve import Application
from ray.serve.exceptions import RayServeException

from serve.cluster.deployment_options import DEFAULTS, DEPLOYMENT_NAME
from serve.cluster.nodes import look_at_nodes
from serve.cluster.replica import Classifiers
from serve.config import ServerConfig
from serve.errors import InvalidRequest, OfframpError


def build(config: ServerConfig) -> Application:
    """Return the application over the configured bundles, for Ray Serve's proxies.

    Ray builds the application before it stops any replica of the one before. So what would keep
    replicas from starting is refused here, and the bundles are pinned that all of them serve.

    Raises:
        RayServeException: what is wrong; Ray shows its message as the application's.
    """
    try:
        _check(config)
        pins = look_at_nodes(config) if ray.is_initialized() else config.bundle_sha256
    except OfframpError as error:
        # Of other exceptions Ray shows the trace, and it would build again three times.
        raise RayServeException(str(error)) from None
    return bind(config.model_copy(update={"bundle_sha256": pins}))


def _check(config: ServerConfig) -> None:
    """Refuse what proxies do not have.

    Raises:
        InvalidRequest: the config has neither keys nor says that none are wanted, or wants TLS
            or gRPC, or a folder on one machine.
    """
    if config.state:
        raise InvalidRequest(
            "state is a folder of one machine: leave it out; in a cluster policies are kept in the "
            "cluster's store"
        )
    if config.grpc_port is not None:
        raise InvalidRequest(
            "Ray Serve's proxies do not pass our gRPC on: leave out grpc_port; `offramp serve`, "
            "whose replicas listen themselves, has it"
        )
    if config.tls_cert or config.tls_key or config.tls_client_ca:
        raise InvalidRequest(
            "Ray Serve's proxies speak plain HTTP: leave out tls_cert, tls_key "
            "and tls_client_ca, and end TLS in front of them"
        )
    if config.keys is None and not config.no_auth:
        raise InvalidRequest(
            "the proxies may be reached from outside: set `keys` to a file of keys, or "
            "`no_auth: true` if every client may do everything"
        )


def bind(
    config: ServerConfig,
    address: tuple[str, int] | None = None,
    lines: Path | None = None,
    **options: Any,
) -> Application:
    """Return the application; the options go before `serve.cluster.deployment_options.DEFAULTS`."""
    # Not as decorators: replicas then import the class instead of unpickling its code.
    deploy = ray_serve.deployment(name=DEPLOYMENT_NAME, **{**DEFAULTS, **options})
    application: Application = deploy(ray_serve.ingress()(Classifiers)).bind(config, address, lines)
    return application
