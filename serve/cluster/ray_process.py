"""The process in which `offramp serve` runs Ray: starts it, deploys, and has replicas stop.

`serve.cluster.local_cluster` starts it, in a session of its own, and ends the whole session. It
reads a `Job` and later a line, "stop". It writes a line for each `Event`.
"""

import asyncio
import json
import logging
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from serve.cluster.deployment_options import APP_NAME, LOGGING, LocalReplicas, local_options
from serve.cluster.node import SlowStart, end_session, start_node
from serve.config import ServerConfig
from serve.errors import OfframpError, Unavailable
from serve.http.settings import DRAIN_S
from serve.runtime.hardware import available_threads

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle
    from ray.serve.schema import ApplicationStatusOverview

log = logging.getLogger(__name__)

# "note", "warn" and "failed" have a sentence; after "failed" and "stopped" nothing else comes.
Event: TypeAlias = Literal["ready", "note", "warn", "failed", "stopped"]
Tell: TypeAlias = Callable[..., None]

# After `DRAIN_S`, for requests that are being cancelled.
GRACE_S: Final = 5.0
_MOST_STARTS: Final = 3
_POLL_EVERY_S: Final = 0.1
_LOOK_EVERY_S: Final = 2.0
# The class of an exception of ours, whose message is a sentence.
_OWN_ERROR: Final = re.compile(r"^serve\.errors\.\w+: ")


class Job(NamedTuple):
    """What to serve.

    Attributes:
        config: the app's config.
        address: host and port that replicas listen on.
        replicas: all on this machine.
        num_gpus: of this machine, which replicas may take.
        folder: of the session, see `serve.cluster.node.session_folder`.
        lines: the socket that takes the replicas' log lines.
    """

    config: ServerConfig
    address: tuple[str, int]
    replicas: LocalReplicas
    num_gpus: int
    folder: Path
    lines: Path


def main() -> None:
    """Serve until it is told to stop, and end without waiting for Ray."""
    # What libraries print must not come among the events.
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job: Job = pickle.load(sys.stdin.buffer)  # the command's own, through a pipe
    stopping = threading.Event()
    threading.Thread(target=_await_stop, args=(stopping,), daemon=True).start()

    def tell(event: Event, said: str = "") -> None:
        print(json.dumps([event, said]), file=events, flush=True)

    try:
        start(job)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray's would wait for Ray
        handle = _deploy(job)
        tell("ready")
        _watch(job.replicas.number, stopping, tell)
        _stop_listening(handle, tell)
        tell("stopped")
    except OfframpError as error:
        tell("failed", str(error))
    os._exit(0)


def _await_stop(stopping: threading.Event) -> None:
    if not sys.stdin.buffer.readline():  # the command has been killed
        end_session(os.getsid(0), spared=os.getpid())
        os._exit(1)
    stopping.set()


def start(job: Job) -> None:
    """Start Ray; a start that was too slow for Ray is tried again."""
    for left in reversed(range(_MOST_STARTS)):
        try:
            start_node(job.folder, available_threads(), job.num_gpus)
        except SlowStart:
            if not left:
                raise
            log.warning("Ray did not start in time; trying again")
            end_session(os.getsid(0), spared=os.getpid())
        else:
            return


def _deploy(job: Job) -> "DeploymentHandle[Any]":
    """Return the handle of the deployment once every replica is ready."""
    from ray import serve as ray_serve
    from ray.exceptions import RayError

    from serve.cluster.deployment import bind

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    try:
        # Replicas listen themselves: a proxy in Python costs several times what a replica costs.
        ray_serve.start(proxy_location="Disabled")
    except RayError as error:  # from an actor, with its traceback
        raise Unavailable(f"Ray Serve does not start: {_last_line(str(error))}") from None
    options = local_options(job.replicas, available_threads())
    app = bind(job.config, job.address, job.lines, **options)
    target = ray_serve.RunTarget(app, name=APP_NAME, logging_config=LOGGING)
    [handle] = ray_serve.run_many([target], wait_for_applications_running=False)
    while (state := _state()).status != "RUNNING":
        if state.status == "DEPLOY_FAILED":
            said = "\n".join(deployment.message for deployment in state.deployments.values())
            raise Unavailable(f"the replicas do not start: {_last_line(said)}")
        time.sleep(_POLL_EVERY_S)
    # Ready to ask replicas to stop, which a handle's first use would need the cluster's head for.
    return handle.options()


def _state() -> "ApplicationStatusOverview":
    from ray import serve as ray_serve

    return ray_serve.status().applications[APP_NAME]


def _watch(wanted: int, stopping: threading.Event, tell: Tell) -> None:
    """Tell why fewer replicas run than there should be, once for each reason, until the stop."""
    said = ""
    while not stopping.wait(_LOOK_EVERY_S):
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
                tell("note", f"all {wanted} replicas run again")
            said = ""
        elif deployment.message and reason != said:
            tell("warn", f"{running} of {wanted} replicas run: {reason}")
            said = reason


def _stop_listening(handle: "DeploymentHandle[Any]", tell: Tell) -> None:
    """Make every replica accept no more connections and answer what it has accepted."""
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    from serve.cluster.ray_replicas import ask_all

    try:
        # A replica that has died must not end the wait for the others.
        replies = asyncio.run(ask_all(handle, "stop_listening", timeout_s=DRAIN_S + GRACE_S))
    except (RayError, RayServeException, TimeoutError) as error:
        replies = [error]
    for reply in replies:
        if isinstance(reply, BaseException):
            tell("warn", f"a replica did not stop in order: {_last_line(str(reply))}")


def _last_line(text: str) -> str:
    """Return the last line of a message of Ray's: the exception below its traceback."""
    lines = [line for line in text.splitlines() if line.strip()]
    return _OWN_ERROR.sub("", lines[-1]) if lines else "Ray does not say why"


if __name__ == "__main__":
    main()
