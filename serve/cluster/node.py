"""Ray on this machine alone, by Ray's public switches."""

import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final

from serve.cluster.leftover import end_leftover
from serve.cluster.ray_calls import RayCalls, RayEnded
from serve.cluster.session_folder import check_space, session_folder
from serve.errors import Unavailable

log = logging.getLogger(__name__)

# Ray reads these at import, in every process.
ENVIRONMENT: Final = {
    # Ray's default of 15 starves replicas on a busy machine.
    "RAY_worker_niceness": "0",
    # Usage reports would leave the machine.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Silences the warning that Ray will one day hide GPUs from actors that ask for none.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray's proxies would believe every client on their machine what address it has (uvicorn).
    "FORWARDED_ALLOW_IPS": "",
    # A dead proxy is noticed by this check alone; Ray's default is 10 s.
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "2",
    # A replica that fails its checks is hung, or has no engine: it would not drain, but be waited
    # for, and meanwhile be dealt connections.
    "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
    # What a hung process has to end by itself before it is killed; Ray's default is 5 s.
    "RAY_kill_worker_timeout_milliseconds": "2000",
}
# Of a node that is the whole cluster, whatever the caller's environment says. Any process that Ray
# takes for one of the cluster's may run code in it, so the token is required. Ray knows the second
# name from systems on which it has no clusters; then all but one port of each replica is bound to
# 127.0.0.1.
ALONE: Final = {
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
_TOKEN_PATH: Final = "RAY_AUTH_TOKEN_PATH"
# Ray keeps what it has read once, so this process has one token, for any number of nodes.
_TOKEN: Final = secrets.token_hex(32)
# For this process alone: Ray's handler would print a trace for SIGTERM and abort 3 s later.
_NO_SIGNAL_HANDLER = "RAY_DISABLE_FAILURE_SIGNAL_HANDLER"
# What Ray's processes have to end by themselves, once Ray has been shut down.
_LEFT_S: Final = 3.0
# The smallest that Ray takes; requests do not use the object store.
_OBJECT_STORE_BYTES = 78_643_200
# A start that has been called off has so long to come to its end.
_CALL_OFF_S: Final = 5.0
# Ray gives its node 30 s to start, which is too short on a machine whose cores are all at work, and
# has these words for it.
_MOST_STARTS: Final = 3
_TOO_SLOW: Final = re.compile("timed out (during startup|waiting)", re.IGNORECASE)
# The shutdown ends the control process, and others after it.
_SHUTDOWN_S: Final = 5.0


@contextmanager
def local_node(
    num_cpus: int,
    num_gpus: int = 0,
    called_off: Callable[[], bool] = lambda: False,
    beside: Callable[[Path], AbstractContextManager[object]] = nullcontext,
) -> Iterator[RayCalls]:
    """Run Ray with `ENVIRONMENT` on this machine, for as long as the block takes.

    Yields what calls of Ray should go through that may come when Ray has ended. Ray may not run in
    the block if its start was called off.

    Ray must not have been imported before, as it reads some settings then. This process's signal
    handlers stay as they are. All actors together may ask for so many cores and GPUs. What
    `beside` returns for the session's folder lasts longer than Ray's processes.

    Raises:
        Unavailable: Ray does not start.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with session_folder() as folder, beside(folder):
        os.environ.update(ALONE)
        os.environ.pop("RAY_AUTH_TOKEN", None)  # it would be preferred
        os.environ[_TOKEN_PATH] = str(_write_token(folder))
        os.environ[_NO_SIGNAL_HANDLER] = "1"
        import ray  # noqa: F401 - it reads its settings now

        del os.environ[_NO_SIGNAL_HANDLER]
        logging.getLogger("ray").setLevel(logging.ERROR)
        calls = RayCalls()
        try:
            options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "_temp_dir": str(folder / "ray")}
            _start(calls, options, called_off)
            yield calls
        finally:
            _end(calls)


def _start(calls: RayCalls, options: dict[str, Any], called_off: Callable[[], bool]) -> None:
    import ray

    start = partial(
        ray.init,
        address="local",
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        log_to_driver=False,
        logging_level=logging.ERROR,
        **options,
    )
    for left in reversed(range(_MOST_STARTS)):
        try:
            calls.call(start, until=_for_some_time(called_off))
            break
        except Exception as error:  # Ray raises Exception itself
            if called_off():
                return
            check_space(Path(options["_temp_dir"]).parent)
            if not left or not _TOO_SLOW.search(str(error)):
                raise Unavailable(f"Ray does not start: {error}") from error
            log.warning("Ray did not start in time; trying again")
            end_leftover(Path(os.environ[_TOKEN_PATH]), _TOKEN_PATH)
    if not calls.hang and ray.is_initialized():
        calls.watch(ray.get_runtime_context().gcs_address)


def _for_some_time(called_off: Callable[[], bool]) -> Callable[[], bool]:
    """Return what tells whether something was called off, `_CALL_OFF_S` ago or more."""
    since_s = inf

    def called_off_before() -> bool:
        nonlocal since_s
        if called_off():
            since_s = min(since_s, time.monotonic())
        return time.monotonic() >= since_s + _CALL_OFF_S

    return called_off_before


def _end(calls: RayCalls) -> None:
    """End Ray's processes: by Ray, or without it where it does not answer."""
    import ray

    after_s, restore = 0.0, _keep_stderr_for_python()
    if not calls.hang:
        with suppress(RayEnded):
            calls.call(partial(ray.shutdown, wait_for_processes=True), grace_s=_SHUTDOWN_S)
            after_s = _LEFT_S
            restore()
    end_leftover(Path(os.environ[_TOKEN_PATH]), _TOKEN_PATH, after_s)


def _keep_stderr_for_python() -> Callable[[], None]:
    """Drop what native code writes to stderr: Ray's tells of every call that has lost its process.

    Where Ray is not shut down, its threads go on until this process ends. What is returned undoes
    it.
    """
    kept = sys.__stderr__
    if kept is None:
        return lambda: None
    own = os.fdopen(os.dup(2), "w")
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    sys.__stderr__ = own  # type: ignore[misc]

    def restore() -> None:
        os.dup2(own.fileno(), 2)
        sys.__stderr__ = kept  # type: ignore[misc]
        own.close()

    return restore


def _write_token(folder: Path) -> Path:
    path = folder / "token"
    path.touch(0o600)
    path.write_text(_TOKEN)
    return path
