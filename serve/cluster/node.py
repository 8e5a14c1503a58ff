"""Ray on this machine alone, for as long as a server runs."""

import logging
import os
import re
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from serve.errors import Unavailable

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
# For the process that starts Ray alone: Ray would print a trace for SIGTERM and abort 3 s later.
_NO_SIGNAL_HANDLER: Final = "RAY_DISABLE_FAILURE_SIGNAL_HANDLER"
# The smallest that Ray takes; requests do not use the object store.
_OBJECT_STORE_BYTES: Final = 78_643_200
# A session begins with less than 1 MB; its logs grow.
_LEAST_FREE_BYTES: Final = 8 * 2**20
# What Ray says of a start that has taken more than 30 s.
_TOO_SLOW: Final = re.compile("timed out (during startup|waiting)", re.IGNORECASE)
# What killed processes have to be gone.
_KILLED_S: Final = 5.0
_POLL_EVERY_S: Final = 0.05


class SlowStart(Unavailable):
    """Ray has given its node up, which happens where all cores are at work."""


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
def local_node(folder: Path, num_cpus: int) -> Iterator[None]:
    """Run Ray on this machine for as long as the block takes, see `start_node`."""
    try:
        start_node(folder, num_cpus)
        yield
    finally:
        import ray

        ray.shutdown()


def start_node(folder: Path, num_cpus: int, num_gpus: int = 0) -> None:
    """Start Ray with `ENVIRONMENT` on this machine.

    Ray must not have been imported before, as it reads some settings then. Its processes end with
    the thread that calls this. All actors together may ask for so many cores and GPUs.

    Raises:
        Unavailable: Ray does not start; `SlowStart` where it has not waited long enough.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ.update(ALONE)
    os.environ.pop("RAY_AUTH_TOKEN", None)  # it would be preferred
    os.environ[_TOKEN_PATH] = str(_write_token(folder))
    os.environ[_NO_SIGNAL_HANDLER] = "1"
    import ray  # it reads its settings now

    del os.environ[_NO_SIGNAL_HANDLER]
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray.init(
            address="local",
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            _temp_dir=str(folder / "ray"),
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # Ray raises Exception itself
        _check_space(folder)
        why = SlowStart if _TOO_SLOW.search(str(error)) else Unavailable
        raise why(f"Ray does not start: {error}") from error


def end_session(session: int, spared: int | None = None) -> None:
    """Kill the processes of a session but one; return when none is left, or after some seconds."""
    end_s = time.monotonic() + _KILLED_S
    while (pids := _running(session) - {spared}) and time.monotonic() < end_s:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_EVERY_S)


def _running(session: int) -> set[int]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            about = (process / "stat").read_text().rpartition(")")[2].split()
            state, own = about[0], int(about[3])
            if own == session and state != "Z":
                found.add(int(process.name))
    return found


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
