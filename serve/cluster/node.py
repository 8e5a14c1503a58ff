"""A Ray cluster of this machine alone, with those processes that serving has use for."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from serve.errors import Unavailable

# Read by Ray at import, in every process. Niceness 15, its default, starves replicas on a
# busy machine; usage reports would leave the machine; the third keeps Ray from warning that
# it will one day hide GPUs from actors that ask for none. A proxy that has died, where there
# is one, is missed by everybody, so it is looked for more often than every 10 s.
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
# What the raylet, the process of a node that starts the others, is told to start: what makes
# Ray's own metrics and reports to the dashboard, and what installs packages for actors that ask
# for some.
_AGENTS = ("--dashboard_agent_command", "--runtime_env_agent_command")
_AGENT_PORTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)
# It insists on having them, and ends when one does. This one lasts until the raylet, at the
# other end of its standard input, is gone.
_NO_AGENT = "cat"
# In the place of a port: not in use. Ray writes it itself where an agent lacks its packages.
_NO_PORT = -1


def start_node(num_cpus: int) -> None:
    """Start Ray with `ENVIRONMENT`, until `ray.shutdown`.

    Ray should not have been imported before: it reads some of its settings then. Once it has
    started, its core hears of SIGTERM before this process's own handlers do, until they are set
    anew.

    Args:
        num_cpus: that actors may ask for, all together. None may ask for a `runtime_env`: nobody
            would install it.

    Raises:
        Unavailable: Ray does not start.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    # Ray would take SIGTERM itself, and leave processes behind if it came during their start.
    ray._private.utils.set_sigterm_handler = lambda handler: None
    try:
        with _lean():
            ray.init(
                address="local",
                num_cpus=num_cpus,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except Exception as error:  # its `Node` raises just that
        raise Unavailable(f"Ray does not start: {error}") from error


@contextmanager
def _lean() -> Iterator[None]:
    """Let Ray start no process that nobody here would hear of.

    It has no settings for that. Five Python processes fewer: a server is ready in two thirds of
    the time. The raylet waits for its agents no longer than 15 s, whatever its settings, and
    aborts; on a busy machine or a cold disk they took longer.
    See https://github.com/ray-project/ray/issues/65983.
    """
    from ray._private import services
    from ray._private.node import Node

    with ExitStack() as stack:
        for name in _UNUSED:
            stack.enter_context(_replaced(Node, name, _start_nothing))
        start = _without_agents(services.start_ray_process)
        stack.enter_context(_replaced(services, "start_ray_process", start))
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _start_nothing(node: Any, **options: Any) -> None:
    """Stand in for a method of `Node`."""


def _without_agents(start: Callable[..., Any]) -> Callable[..., Any]:
    """Return what starts Ray's processes as `start` does, but a raylet without agents."""
    from ray._private.ray_constants import PROCESS_TYPE_RAYLET
    from ray._raylet import persist_port  # type: ignore[attr-defined]  # compiled, no stub

    def start_process(command: Sequence[str], process_type: str, **options: Any) -> Any:
        if process_type == PROCESS_TYPE_RAYLET:
            arguments = dict(part.partition("=")[::2] for part in command)
            for name in _AGENT_PORTS:
                persist_port(arguments["--session_dir"], arguments["--node_id"], name, _NO_PORT)
            command = [_without_agent(part) for part in command]
        return start(command, process_type, **options)

    return start_process


def _without_agent(part: str) -> str:
    name = part.partition("=")[0]
    return f"{name}={_NO_AGENT}" if name in _AGENTS else part
