"""Ray on this machine alone, by Ray's public switches."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
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
    # A dead proxy is noticed by this check alone; Ray's default is 10 s.
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "2",
    # A replica that fails its checks is hung, or has no engine: it would not drain, but be waited
    # for, and meanwhile be dealt connections.
    "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
    # What a hung process has to end by itself before it is killed; Ray's default is 5 s.
    "RAY_kill_worker_timeout_milliseconds": "2000",
}
# For this process alone: Ray's handler would print a trace for SIGTERM and abort 3 s later.
_NO_SIGNAL_HANDLER = "RAY_DISABLE_FAILURE_SIGNAL_HANDLER"
# The smallest that Ray takes; requests do not use the object store.
_OBJECT_STORE_BYTES = 78_643_200
# Linux ends Ray's processes when the thread that has started them ends, so this thread stays. On
# the main thread a signal could break off the start and leave processes behind; elsewhere it
# cannot, and Ray does not install its own handler for SIGTERM.
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="ray-start")


def start_node(num_cpus: int) -> None:
    """Start Ray with `ENVIRONMENT`, until `ray.shutdown`.

    Ray must not have been imported before, as it reads some settings then. This process's signal
    handlers stay as they are.

    Args:
        num_cpus: that all actors together may ask for.

    Raises:
        Unavailable: Ray does not start.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ[_NO_SIGNAL_HANDLER] = "1"
    import ray

    del os.environ[_NO_SIGNAL_HANDLER]
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        _THREAD.submit(
            ray.init,
            address="local",
            num_cpus=num_cpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        ).result()
    except Exception as error:  # Ray raises Exception itself
        raise Unavailable(f"Ray does not start: {error}") from error
