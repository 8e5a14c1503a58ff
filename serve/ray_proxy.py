"""How Ray Serve's proxy stops: as uvicorn stops in standalone mode, the door first.

Ray Serve has no call for it. Its proxies listen for as long as the cluster lives, and once the
application is deleted they answer with a plain-text 404, which looks like a wrong address.
"""

import logging
import time
from typing import Any

log = logging.getLogger(__name__)

POLL_EVERY_S = 0.05


def close_proxy(drain_s: float) -> None:
    """Let this machine's proxy take no more connections and answer what it has taken in.

    Args:
        drain_s: how long to wait for the last answer.
    """
    import ray
    from ray.exceptions import RayError
    from ray.serve._private.constants import SERVE_NAMESPACE, SERVE_PROXY_NAME

    end_s = time.monotonic() + drain_s
    name = f"{SERVE_PROXY_NAME}-{ray.get_runtime_context().get_node_id()}"
    try:
        proxy: Any = ray.get_actor(name, SERVE_NAMESPACE)
        while (left_s := end_s - time.monotonic()) > 0:
            if ray.get(proxy.__ray_call__.remote(_close), timeout=left_s):
                return
            time.sleep(POLL_EVERY_S)
        log.warning("stopped with requests unanswered")
    except (RayError, ValueError) as error:  # it has died, or never was
        log.warning("the proxy could not be stopped in order: %s", error)


def _close(proxy: Any) -> bool:
    """Close the door, in the proxy's own process; tell whether the last answer is out."""
    starting = proxy._start_http_server_task
    if not starting.done():
        return False
    running, server = starting.result()
    server.should_exit = True
    done: bool = running.done()
    return done
