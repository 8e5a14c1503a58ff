"""A Ray cluster of this machine alone, with those processes that serving has use for."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

# Read by Ray at import, in every process. Niceness 15, its default, starves replicas on a
# busy machine; usage reports would leave the machine; the third keeps Ray from warning that
# it will one day hide GPUs from actors that ask for none. A proxy that has died is missed by
# everybody, so it is looked for more often than every 10 s.
ENVIRONMENT: Final = {
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "2",
}
# The smallest that Ray takes; nothing of ours goes through the object store.
_OBJECT_STORE_BYTES = 78_643_200
# Methods of Ray's `Node`, by what each starts: the autoscaler, which would ask a cloud for
# machines; what passes the log files' lines on to this process; the dashboard's server, which
# runs without a page where no dashboard is asked for.
_UNUSED = ("start_monitor", "start_log_monitor", "start_api_server")


def start_node(num_cpus: int) -> None:
    """Start Ray with `ENVIRONMENT`, until `ray.shutdown`.

    Ray should not have been imported before: it reads some of its settings then. Once it has
    started, its core hears of SIGTERM before this process's own handlers do, until they are set
    anew.

    Args:
        num_cpus: that actors may ask for, all together.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    # Ray would take SIGTERM itself, and leave processes behind if it came during their start.
    ray._private.utils.set_sigterm_handler = lambda handler: None
    with _without_unused():
        ray.init(
            address="local",
            num_cpus=num_cpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )


@contextmanager
def _without_unused() -> Iterator[None]:
    """Let Ray start no process that nobody here would hear of.

    It has no settings for that. Three Python processes fewer: a server is ready a quarter sooner.
    """
    from ray._private.node import Node

    starters = {name: getattr(Node, name) for name in _UNUSED if hasattr(Node, name)}
    for name in starters:
        setattr(Node, name, _start_nothing)
    try:
        yield
    finally:
        for name, starter in starters.items():
            setattr(Node, name, starter)


def _start_nothing(node: Any, **options: Any) -> None:
    """Stand in for a method of `Node`."""
