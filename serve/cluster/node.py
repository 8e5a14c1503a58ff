"""Ray on this machine alone, for as long as a server runs."""

import logging
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from serve.cluster.ray_calls import RayCalls, RayEnded
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
# Its value also tells the processes of one session from all others.
_TOKEN_PATH: Final = "RAY_AUTH_TOKEN_PATH"
# Ray keeps what it has read once, so this process has one token, for any number of nodes.
_TOKEN: Final = secrets.token_hex(32)
# For this process alone: Ray's handler would print a trace for SIGTERM and abort 3 s later.
_NO_SIGNAL_HANDLER: Final = "RAY_DISABLE_FAILURE_SIGNAL_HANDLER"
# The smallest that Ray takes; requests do not use the object store.
_OBJECT_STORE_BYTES: Final = 78_643_200
# A session begins with less than 1 MB; its logs grow.
_LEAST_FREE_BYTES: Final = 8 * 2**20
# Ray gives its node 30 s to start, which is too short on a machine whose cores are all at work, and
# has these words for it.
_MOST_STARTS: Final = 3
_TOO_SLOW: Final = re.compile("timed out (during startup|waiting)", re.IGNORECASE)
# The shutdown ends the control process, and others after it.
_SHUTDOWN_S: Final = 5.0
# What Ray's processes have to end by themselves once Ray has been shut down, and once killed.
_LEFT_S, _KILLED_S = 3.0, 5.0
_POLL_EVERY_S: Final = 0.05


@contextmanager
def session_folder() -> Iterator[Path]:
    """Yield a new folder for Ray's sockets, logs and token, closed to other users.

    Ray makes its own folders with mode 777, as its processes may be of several users.

    Raises:
        Unavailable: the folder cannot be made, or its disk is full.
    """
    parent = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp").absolute()
    try:
        _check_space(parent)
        folder = Path(tempfile.mkdtemp(prefix="offramp-", dir=parent))
    except OSError as error:
        raise Unavailable(
            f"Ray does not start: no folder can be made in {parent}: {error.strerror}; "
            "set RAY_TMPDIR to another one"
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def local_node(
    folder: Path, num_cpus: int, num_gpus: int = 0, called_off: Callable[[], bool] = lambda: False
) -> Iterator[RayCalls]:
    """Run Ray with `ENVIRONMENT` on this machine, for as long as the block takes.

    Yields what calls of Ray should go through that may come when Ray has ended. Ray may not run in
    the block if its start was called off.

    Ray must not have been imported before, as it reads some settings then. This process's signal
    handlers stay as they are. All actors together may ask for so many cores and GPUs.

    Raises:
        Unavailable: Ray does not start.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
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
            calls.call(start, until=called_off)
            break
        except Exception as error:  # Ray raises Exception itself
            if called_off():
                return
            _check_space(Path(options["_temp_dir"]).parent)
            if not left or not _TOO_SLOW.search(str(error)):
                raise Unavailable(f"Ray does not start: {error}") from error
            log.warning("Ray did not start in time; trying again")
            _end_processes()
    if not calls.hang and ray.is_initialized():
        calls.watch(ray.get_runtime_context().gcs_address)


def _end(calls: RayCalls) -> None:
    """End Ray's processes: by Ray, or without it where it does not answer."""
    import ray

    after_s, restore = 0.0, _keep_stderr_for_python()
    if not calls.hang:
        with suppress(RayEnded):
            calls.call(partial(ray.shutdown, wait_for_processes=True), grace_s=_SHUTDOWN_S)
            after_s = _LEFT_S
            restore()
    _end_processes(after_s)


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


def _end_processes(after_s: float = 0.0) -> None:
    """Return when no process of the session is left; what has not ended by then is killed.

    Ray's agents wait for minutes for a control process that has died.
    """
    token = Path(os.environ[_TOKEN_PATH])
    kill_s = time.monotonic() + after_s
    while (pids := list(_of_session(token))) and time.monotonic() < kill_s + _KILLED_S:
        if time.monotonic() >= kill_s:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_EVERY_S)


def _of_session(token: Path) -> Iterator[int]:
    mark = f"{_TOKEN_PATH}={token}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        # Of processes that have just ended, and of other users, it cannot be read.
        with suppress(OSError):
            marked = mark in (process / "environ").read_bytes().split(b"\0")
            if int(process.name) != os.getpid() and (marked or _titled(process, token.parent)):
                yield int(process.name)


def _titled(process: Path, folder: Path) -> bool:
    """Tell whether a process of Ray's has files of a folder open.

    Its title may lie where its environment was.
    """
    if not (process / "cmdline").read_bytes().startswith(b"ray::"):
        return False
    return any(str(f.readlink()).startswith(f"{folder}/") for f in (process / "fd").iterdir())


def _check_space(parent: Path) -> None:
    """Raise `Unavailable` if the disk is full: Ray would only say that it waits for a file."""
    if parent.exists() and shutil.disk_usage(parent).free < _LEAST_FREE_BYTES:
        raise Unavailable(
            f"Ray does not start: the disk of {parent} is full, and Ray's session needs "
            f"{_LEAST_FREE_BYTES >> 20} MiB there; make room, or set RAY_TMPDIR to a folder "
            "on another disk"
        )


def _write_token(folder: Path) -> Path:
    path = folder / "token"
    path.touch(0o600)
    path.write_text(_TOKEN)
    return path
