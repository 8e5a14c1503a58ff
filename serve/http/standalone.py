"""The server as one process under uvicorn, without Ray."""

import signal
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from serve.api.app import build_http_app
from serve.api.replicas import OnlyReplica
from serve.config import ServerConfig
from serve.http.listener import listen
from serve.http.loading import app_context, assemble
from serve.http.server import uvicorn_config
from serve.policy.live import MemoryStore


def build_standalone_app(config: ServerConfig) -> FastAPI:
    """Return the app over bundles; the app's lifespan starts and stops the engines.

    Raises:
        InvalidBundle: a bundle cannot be loaded.
        DeviceUnavailable: a bundle lacks the wanted precision.
        InvalidKeys: the file of keys cannot be used.
    """
    options, active = config.engine_options, config.active_exits
    assembly = assemble(config.bundles, options, MemoryStore(), active)
    catalog = assembly.catalog
    catalog.set_baselines({})
    replicas = OnlyReplica(catalog, assembly.metrics)
    return build_http_app(app_context(config, assembly, replicas))


def serve_standalone(app: FastAPI, address: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight are answered first.

    Args:
        app: from `build_standalone_app`.
        address: from `serve.http.listener.take_port`; closed in the end.
        on_ready: called once, when the server answers.

    Raises:
        PortTaken: another process listens there already.
    """
    config = uvicorn_config(app)
    listen(address)
    # uvicorn handles signals while it runs and raises them again when it has stopped. That second
    # time must not end the process before `offramp serve` has printed its last line.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    _Server(config, on_ready).run(sockets=[address])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()
