"""`offramp serve` on Ray Serve: a cluster on this machine, for as long as the command runs."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from serve.announcer import Announcer
from serve.cluster.log_socket import collecting
from serve.cluster.missing import MissingReplicas, last_line
from serve.cluster.node import local_node
from serve.cluster.options import APP_NAME, DEPLOYMENT_NAME, LOGGING, LocalReplicas, local_options
from serve.cluster.ray_calls import RayEnded
from serve.config import ServerConfig, stop_signals
from serve.errors import Unavailable
from serve.http.settings import DRAIN_S
from serve.log_output import Output
from serve.runtime.cuda_provider import num_devices
from serve.runtime.hardware import available_threads

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

log = logging.getLogger(__name__)

# After `DRAIN_S`, for requests that are being cancelled.
_GRACE_S = 5.0
_POLL_EVERY_S = 0.1


def serve_on_ray(
    config: ServerConfig,
    address: tuple[str, int],
    replicas: LocalReplicas,
    on_ready: Callable[[], None],
    announcer: Announcer,
    output: Output,
) -> None:
    """Serve until a signal to stop; then answer admitted requests and end every process.

    A signal that comes earlier ends the start as soon as Ray can be ended. If Ray's processes have
    got the signal too, they are gone with their requests. Then, and after a second Ctrl-C, this
    process ends here: calls of Ray that have not ended would hold it up.

    Args:
        config: of the app.
        address: host and port that replicas listen on, see `take_shared_port`.
        replicas: all on this machine.
        on_ready: called once every replica is ready.
        announcer: says how it goes.
        output: of the replicas' log lines.

    Raises:
        Unavailable: Ray or the replicas do not start.
    """
    signals, handle = _Signals(), None
    num_gpus = num_devices() if replicas.gpu_share else 0
    lines = _Lines(output)
    # Serve's processes end with it.
    with local_node(available_threads(), num_gpus, signals.came, lines.collected_in) as calls:
        try:
            if not signals.came():
                deploy = partial(_deploy, config, address, replicas, signals, lines.socket)
                handle = calls.call(deploy)
            if not signals.came():
                on_ready()
                with _watched(announcer):
                    signals.wait()
            announcer.say("stopping: answering what is in flight ...")
            if handle:
                calls.call(partial(_stop_listening, handle), until=signals.hurry)
        except RayEnded:
            if not signals.came():
                raise
            log.warning("Ray's processes have got the signal too, and requests in flight are lost")
    if calls.hang:
        logging.shutdown()
        announcer.say("stopped")
        os._exit(0)


@contextmanager
def _watched(announcer: Announcer) -> Iterator[None]:
    """Say why fewer replicas run than there should be, for as long as the block takes."""
    from serve.cluster.controller import Controller

    ended = Event()
    details = Controller(APP_NAME, DEPLOYMENT_NAME).details
    watch = MissingReplicas(details, announcer.warn).watch
    # Not waited for in the end: Ray may leave it without an answer.
    Thread(target=watch, args=(ended,), name="missing-replicas", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


class _Lines:
    """The replicas' log lines, which come on a socket in the session's folder."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.socket = Path()

    def collected_in(self, folder: Path) -> AbstractContextManager[None]:
        self.socket = folder / "lines"
        return collecting(self.socket, self._output)


class _Signals:
    """The signals to stop, from the making of this object on."""

    def __init__(self) -> None:
        # A handler may run within another one: SimpleQueue allows that, Event does not.
        self._came: SimpleQueue[int] = SimpleQueue()
        self._numbers: list[int] = []
        for number in stop_signals():
            signal.signal(number, self._take)

    def came(self) -> bool:
        return bool(self._numbers)

    def hurry(self) -> bool:
        """Tell whether Ctrl-C has been pressed after another signal."""
        return signal.SIGINT in self._numbers[1:]

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when a signal has come, or the time is over."""
        try:
            self._came.put(self._came.get(timeout=timeout_s))
        except Empty:
            return

    def _take(self, number: int, frame: object) -> None:
        self._numbers.append(number)
        self._came.put(number)


def _deploy(
    config: ServerConfig,
    address: tuple[str, int],
    replicas: LocalReplicas,
    signals: _Signals,
    lines: Path,
) -> "DeploymentHandle[Any]":
    """Return the handle of the deployment once every replica is ready or a signal has come."""
    from ray import serve as ray_serve
    from ray.exceptions import RayError

    from serve.cluster.deployment import bind

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    try:
        # Replicas listen themselves: a proxy in Python costs several times what a replica costs.
        ray_serve.start(proxy_location="Disabled")
    except RayError as error:  # from an actor, with its traceback
        raise Unavailable(f"Ray Serve does not start: {_last_line(str(error))}") from None
    app = bind(config, address, lines, **local_options(replicas, available_threads()))
    target = ray_serve.RunTarget(app, name=APP_NAME, logging_config=LOGGING)
    [handle] = ray_serve.run_many([target], wait_for_applications_running=False)
    while not signals.came():
        state = ray_serve.status().applications[APP_NAME]
        if state.status == "RUNNING":
            break
        if state.status == "DEPLOY_FAILED":
            messages = [deployment.message for deployment in state.deployments.values()]
            reason = _last_line("\n".join(messages))
            raise Unavailable(f"the replicas do not start: {reason}")
        signals.wait(_POLL_EVERY_S)
    # Ready to ask replicas to stop, which a handle's first use would need the cluster's head for.
    return handle.options()


def _stop_listening(handle: "DeploymentHandle[Any]") -> None:
    """Make every replica accept no more connections and answer what it has accepted."""
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    from serve.cluster.replicas import ask_all

    try:
        # A replica that has died must not end the wait for the others.
        replies = asyncio.run(ask_all(handle, "stop_listening", timeout_s=DRAIN_S + _GRACE_S))
    except (RayError, RayServeException, TimeoutError) as error:
        replies = [error]
    for reply in replies:
        if isinstance(reply, BaseException):
            log.warning("a replica did not stop in order: %s", _last_line(str(reply)))


def _last_line(text: str) -> str:
    return last_line(text) or "Ray does not say why"
