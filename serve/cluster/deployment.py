"""The Ray Serve application."""

from typing import Any

from ray import serve as ray_serve
from ray.serve import Application

from serve.cluster.options import DEFAULTS, DEPLOYMENT_NAME
from serve.cluster.replica import Classifiers
from serve.config import ServerConfig
from serve.errors import InvalidRequest


def build(config: ServerConfig) -> Application:
    """Return the application over the configured bundles, for Ray Serve's proxies.

    Raises:
        InvalidRequest: the config has neither keys nor says that none are wanted, or wants TLS
            or gRPC.
    """
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
    return bind(config)


def bind(
    config: ServerConfig, address: tuple[str, int] | None = None, **options: Any
) -> Application:
    """Return the application; the options go before `serve.cluster.options.DEFAULTS`."""
    # Not as decorators: replicas then import the class instead of unpickling its code.
    deploy = ray_serve.deployment(name=DEPLOYMENT_NAME, **{**DEFAULTS, **options})
    application: Application = deploy(ray_serve.ingress()(Classifiers)).bind(config, address)
    return application
