"""A Ray cluster of this machine's own, for as long as `offramp serve` runs."""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from queue import SimpleQueue
from socket import socket
from types import FrameType
from typing import TYPE_CHECKING, Any

from serve.api.app import DRAIN_S
from serve.cluster.node import start_node
from serve.config import ServerConfig
from serve.errors import Unavailable
from serve.http.connection_dealer import ConnectionDealer
from serve.runtime.hardware import available_threads

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

log = logging.getLogger(__name__)

APP_NAME = "offramp"

# Beyond `DRAIN_S`, until what is left has been cancelled.
_GRACE_S = 5.0
# `ray.shutdown` returns while raylet and GCS server are still ending.
CHILDREN_S = 10.0


class _Signalled(Exception):
    """SIGINT or SIGTERM came during the deployment."""


class RayServer:
    """Ray and Ray Serve on this machine, for one app, until a signal comes."""

    def __init__(self, address: socket) -> None:
        """Prepare to serve.

        Args:
            address: where to listen, from `serve.http.listener.take_port`; it is closed in the end.
        """
        self._address = address
        self._signalled = False
        # Unlike an Event it may be told of a signal while it is being told of another.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._deploying = False

    def run(
        self,
        config: ServerConfig,
        replicas: int,
        on_ready: Callable[[], None],
        on_stop: Callable[[], None],
    ) -> None:
        """Serve until SIGINT or SIGTERM; then answer what is in flight and end every process.

        A signal that comes earlier ends the start, as soon as Ray can be ended.

        Args:
            config: of the app.
            replicas: how many.
            on_ready: called once every replica is ready.
            on_stop: called when a signal has come.

        Raises:
            Unavailable: Ray or the replicas do not start.
            PortTaken: somebody else who took the same address listens meanwhile.
        """
        self._catch_signals()
        try:
            self._start()
            # Ray's core hears of SIGTERM first by now, see `_on_signal`.
            self._catch_signals()
            with ConnectionDealer(self._address) as dealer:
                app = self._deploy(config, replicas, dealer.place)
                dealer.listen()
                on_ready()
                self._wake.get()
            on_stop()
            _stop_listening(app)
        except _Signalled:
            on_stop()
        finally:
            _shut_down()

    def _deploy(self, config: ServerConfig, replicas: int, dealer: str) -> "DeploymentHandle[Any]":
        """Return what reaches the replicas, once all of them are ready."""
        from ray import serve as ray_serve
        from ray.serve.schema import LoggingConfig

        from serve.app import bind

        share = available_threads() / replicas
        options = {
            "num_replicas": replicas,
            "ray_actor_options": {"num_cpus": min(1.0, share)},
            "graceful_shutdown_timeout_s": DRAIN_S,
            "graceful_shutdown_wait_loop_s": 0.1,
            # Ray looks every 10 s, and nobody else tells it that a replica has died.
            "health_check_period_s": 1.0,
            # Files that cannot be served today can't be served in a moment either.
            "max_constructor_retry_count": 1,
        }
        self._deploying = True
        if self._signalled:
            raise _Signalled
        try:
            return ray_serve.run(
                bind(config, dealer, **options),
                name=APP_NAME,
                route_prefix="/",
                logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),
            )
        except RuntimeError:  # its message tells that, not why
            raise Unavailable(f"the replicas do not start: {_cause()}") from None
        finally:
            self._deploying = False

    def _start(self) -> None:
        start_node(available_threads())
        from ray import serve as ray_serve
        from ray.exceptions import RayError

        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        try:
            # Connections go to the replicas: a proxy in Python takes several times what they take.
            ray_serve.start(proxy_location="Disabled")
        except RayError as error:  # an actor's, with its traceback
            raise Unavailable(f"Ray Serve does not start: {_last_line(str(error))}") from None

    def _catch_signals(self) -> None:
        """Take SIGINT and SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """End the wait, or the deployment.

        Ray itself takes it badly to be interrupted while it starts; that takes seconds, after
        which the signal is looked at.

        Once it starts, and until we take SIGTERM again, Ray's core hears of it first: it prints
        where the process is, and sets an alarm that would abort it after 3 s.
        """
        signal.alarm(0)
        self._signalled = True
        self._wake.put(None)
        if self._deploying:
            self._deploying = False
            raise _Signalled


def _stop_listening(app: "DeploymentHandle[Any]") -> None:
    """Let the replicas take no more connections and answer what they have taken in."""
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    try:
        call = app.broadcast("stop_listening")
        # Not as soon as one has died: the others may be busy still.
        said = call.results(timeout_s=DRAIN_S + _GRACE_S, return_exceptions=True)
    except (RayError, RayServeException, TimeoutError) as error:
        said = [error]
    for reply in said:
        if isinstance(reply, BaseException):
            log.warning("a replica did not stop in order: %s", _last_line(str(reply)))


def _shut_down() -> None:
    """End every process that was started; Serve's go with the cluster, which is ours alone."""
    import ray

    if ray.is_initialized():
        ray.shutdown()
        _await_children()


def _cause() -> str:
    """Return the last line of what Ray Serve knows of the failure: the replica's exception."""
    from ray import serve as ray_serve

    deployments = ray_serve.status().applications[APP_NAME].deployments.values()
    return _last_line("\n".join(deployment.message for deployment in deployments))


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "Ray does not say why"


def _await_children() -> None:
    """Return once every process that Ray has started for us is gone."""
    end_s = time.monotonic() + CHILDREN_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end_s:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)
