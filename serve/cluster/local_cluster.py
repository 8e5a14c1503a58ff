"""`offramp serve` on Ray Serve: a cluster on this machine, for as long as the command runs."""

import asyncio
import logging
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from serve.announcer import Announcer
from serve.cluster.deployment_options import APP_NAME, LOGGING, LocalReplicas, local_options
from serve.cluster.log_socket import collecting
from serve.cluster.node import local_node, session_folder
from serve.cluster.ray_calls import RayEnded
from serve.config import ServerConfig, stop_signals
from serve.errors import Unavailable
from serve.http.settings import DRAIN_S
from serve.log_output import Output
from serve.runtime.cuda_provider import num_devices
from serve.runtime.hardware import available_threads

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle
    from ray.serve.schema import ApplicationStatusOverview

log = logging.getLogger(__name__)

# After `DRAIN_S`, for requests that are being cancelled.
_GRACE_S: Final = 5.0
_POLL_EVERY_S: Final = 0.1
_LOOK_EVERY_S: Final = 2.0
# The class of an exception of ours, whose message is a sentence.
_OWN_ERROR: Final = re.compile(r"^serve\.errors\.\w+: ")


def serve_on_ray(
    config: ServerConfig,
    address: tuple[str, int],
    replicas: LocalReplicas,
    on_ready: Callable[[], None],
    announcer: Announcer,
    output: Output,
) -> None:
    """Serve until a signal to stop; then answer admitted requests and end every process.

    A signal that comes earlier ends the start. If Ray's processes have got the signal too, they are
    gone with their requests. Then, and after a second Ctrl-C, this process ends here: calls of Ray
    that have not ended would hold it up.

    Args:
        config: the app's config.
        address: host and port that replicas listen on, see `take_shared_port`.
        replicas: all on this machine.
        on_ready: called once every replica is ready.
        announcer: says how it goes.
        output: where the replicas' log lines go.

    Raises:
        Unavailable: Ray or the replicas do not start.
    """
    signals, handle = _Signals(), None
    num_gpus = num_devices() if replicas.gpu_share else 0
    # Serve's processes end with the node, and the socket for their lines after them.
    with (
        session_folder() as folder,
        collecting(lines := folder / "lines", output),
        local_node(folder, available_threads(), num_gpus, signals.came) as calls,
    ):
        try:
            if not signals.came():
                deploy = partial(_deploy, config, address, replicas, signals, lines)
                handle = calls.call(deploy)
            if not signals.came():
                on_ready()
                with _watched(replicas.number, announcer):
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
        state = _state()
        if state.status == "RUNNING":
            break
        if state.status == "DEPLOY_FAILED":
            said = "\n".join(deployment.message for deployment in state.deployments.values())
            raise Unavailable(f"the replicas do not start: {_last_line(said)}")
        signals.wait(_POLL_EVERY_S)
    # Ready to ask replicas to stop, which a handle's first use would need the cluster's head for.
    return handle.options()


def _state() -> "ApplicationStatusOverview":
    from ray import serve as ray_serve

    return ray_serve.status().applications[APP_NAME]


@contextmanager
def _watched(wanted: int, announcer: Announcer) -> Iterator[None]:
    """Say why fewer replicas run than there should be, for as long as the block takes."""
    ended = Event()
    # Not waited for in the end: Ray may leave it without an answer.
    Thread(target=_watch, args=(wanted, announcer, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _watch(wanted: int, announcer: Announcer, ended: Event) -> None:
    """Say what Ray Serve says of replicas that do not start, once for each reason."""
    said = ""
    while not ended.wait(_LOOK_EVERY_S):
        try:
            found = _state()
        except Exception as error:  # Ray raises many kinds
            log.debug("Ray Serve does not tell how many replicas run: %s", error)
            continue
        [deployment] = found.deployments.values()
        running = sum(n for state, n in deployment.replica_states.items() if state == "RUNNING")
        reason = _last_line(deployment.message)
        if running >= wanted:
            if said:
                announcer.warn(f"all {wanted} replicas run again")
            said = ""
        elif deployment.message and reason != said:
            announcer.warn(f"{running} of {wanted} replicas run: {reason}")
            said = reason


def _stop_listening(handle: "DeploymentHandle[Any]") -> None:
    """Make every replica accept no more connections and answer what it has accepted."""
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    from serve.cluster.ray_replicas import ask_all

    try:
        # A replica that has died must not end the wait for the others.
        replies = asyncio.run(ask_all(handle, "stop_listening", timeout_s=DRAIN_S + _GRACE_S))
    except (RayError, RayServeException, TimeoutError) as error:
        replies = [error]
    for reply in replies:
        if isinstance(reply, BaseException):
            log.warning("a replica did not stop in order: %s", _last_line(str(reply)))


def _last_line(text: str) -> str:
    """Return the last line of a message of Ray's: the exception below its traceback."""
    lines = [line for line in text.splitlines() if line.strip()]
    return _OWN_ERROR.sub("", lines[-1]) if lines else "Ray does not say why"
