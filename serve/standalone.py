"""The server as one process, without Ray."""

import asyncio
import signal
import socket
from collections.abc import Callable

import uvloop

from serve.api.app import HttpApp
from serve.api.context import AppContext
from serve.api.replicas import OnlyReplica
from serve.assembly import app_context, assemble_served, http_app
from serve.classifier.model_switch import ModelSwitch
from serve.config import ServerConfig, stop_signals
from serve.http.listener import listen
from serve.http.settings import DRAIN_S, ConnectionState
from serve.policy.database import Database
from serve.policy.state_folder import DATABASE
from serve.runtime.process_memory import keep_objects
from serve.servers import Servers


def standalone_context(
    config: ServerConfig, connections: ConnectionState | None = None
) -> AppContext:
    """Return the models of bundles, loaded, and what goes with them.

    Raises:
        InvalidBundle: a bundle cannot be loaded.
        DeviceUnavailable: a bundle lacks the wanted precision.
        InvalidKeys: the file of keys cannot be used.
    """
    store = Database(config.state and config.state / DATABASE)
    assembly = assemble_served(config, store)
    catalog = assembly.catalog
    catalog.set_baselines({})
    switch = ModelSwitch(catalog, assembly, store, config.baseline(), DRAIN_S)
    switch.begin()
    state = connections or ConnectionState()
    assembly.metrics.watch_connections(state)
    replicas = OnlyReplica(catalog, assembly.metrics)
    return app_context(config, assembly, replicas, state, switch)


def build_standalone_app(
    config: ServerConfig, connections: ConnectionState | None = None
) -> HttpApp:
    """Return the app over `standalone_context`; its lifespan starts and stops the engines."""
    return http_app(config, standalone_context(config, connections))


def serve_standalone(
    config: ServerConfig, address: socket.socket, on_ready: Callable[[], None]
) -> None:
    """Load the models and serve until a signal to stop; requests in flight are answered first.

    Args:
        config: the server's config.
        address: result of `serve.http.listener.take_port`; closed in the end.
        on_ready: called once, when the server answers.

    Raises:
        InvalidBundle: a bundle cannot be loaded.
        DeviceUnavailable: a bundle lacks the wanted precision.
        PortTaken: another process listens there already.
    """
    context = standalone_context(config)
    app = http_app(config, context)
    servers = Servers(app, context, config)
    listen(address)
    # Those of the loop end with it. A signal after that must not end the process before it has
    # printed its last line.
    for number in stop_signals():
        signal.signal(number, lambda *_: None)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(app, servers, address, on_ready))


async def _serve(
    app: HttpApp, servers: Servers, listening: socket.socket, on_ready: Callable[[], None]
) -> None:
    stop = asyncio.Event()

    def signalled(number: signal.Signals) -> None:
        if stop.is_set() and number is signal.SIGINT:
            servers.hurry()
        stop.set()

    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, signalled, number)
    async with app.lifespan():
        keep_objects()
        await servers.start(listening)
        on_ready()
        await stop.wait()
        await servers.stop()
