"""Ray on this machine alone, by Ray's public switches."""

import logging
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from serve.cluster.session_folder import check_space, session_folder
from serve.errors import Unavailable

# Ray reads these at import, in every process.
ENVIRONMENT: Final = {
    # Ray's default of 15 starves replicas on a busy machine.
    "RAY_worker_niceness": "0",
    # Usage reports would leave the machine.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Silences the warning that Ray will one day hide GPUs from actors that ask for none.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
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
ALONE: Final = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_TOKEN_PATH: Final = "RAY_AUTH_TOKEN_PATH"
# Ray keeps what it has read once, so this process has one token, for any number of nodes.
_TOKEN: Final = secrets.token_hex(32)
# For this process alone: Ray's handler would print a trace for SIGTERM and abort 3 s later.
_NO_SIGNAL_HANDLER = "RAY_DISABLE_FAILURE_SIGNAL_HANDLER"
# What Ray's processes have to end by themselves, once Ray has been shut down.
_LEFT_S: Final = 3.0
# The smallest that Ray takes; requests do not use the object store.
_OBJECT_STORE_BYTES = 78_643_200
# Linux ends Ray's processes when the thread that has started them ends, so this thread stays. On
# the main thread a signal could break off the start and leave processes behind; elsewhere it
# cannot, and Ray does not install its own handler for SIGTERM.
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="ray-start")


@contextmanager
def local_node(num_cpus: int, num_gpus: int = 0) -> Iterator[None]:
    """Run Ray with `ENVIRONMENT` on this machine, for as long as the block takes.

    Ray must not have been imported before, as it reads some settings then. This process's signal
    handlers stay as they are. All actors together may ask for so many cores and GPUs.

    Raises:
        Unavailable: Ray does not start.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with session_folder() as folder:
        os.environ.update(ALONE)
        os.environ.pop("RAY_AUTH_TOKEN", None)  # it would be preferred
        os.environ[_TOKEN_PATH] = str(_write_token(folder))
        os.environ[_NO_SIGNAL_HANDLER] = "1"
        import ray

        del os.environ[_NO_SIGNAL_HANDLER]
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            _start(num_cpus, num_gpus, folder)
            yield
        finally:
            processes = _processes()
            ray.shutdown(wait_for_processes=True)
            _end(processes)


def _start(num_cpus: int, num_gpus: int, folder: Path) -> None:
    import ray

    try:
        _THREAD.submit(
            ray.init,
            address="local",
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
            # Below the folder, because Ray opens this one to all users.
            _temp_dir=str(folder / "ray"),
        ).result()
    except Exception as error:  # Ray raises Exception itself
        check_space(folder)
        raise Unavailable(f"Ray does not start: {error}") from error


def _processes() -> list[psutil.Process]:
    """Return Ray's processes below this one that have a title, as its agents and actors do."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "".join(process.cmdline()).startswith("ray::"):
                found.append(process)
    return found


def _end(processes: list[psutil.Process]) -> None:
    """Kill what has not ended with Ray: agents wait for minutes for a head that has died."""
    _, left = psutil.wait_procs(processes, timeout=_LEFT_S)
    for process in left:
        with suppress(psutil.Error):
            process.kill()


def _write_token(folder: Path) -> Path:
    path = folder / "token"
    path.touch(0o600)
    path.write_text(_TOKEN)
    return path
