"""Calls to all replicas of the deployment, with Ray Serve's broadcast."""

import asyncio
import logging
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import ray
from ray import serve as ray_serve
from ray.exceptions import RayError
from ray.serve.context import ReplicaContext
from ray.serve.exceptions import DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle

from serve.api.replicas import Ack, Refreshed
from serve.metrics.page import merge_pages

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
_ASK_AGAIN_S = 0.02
# Of its own: calls that wait for a hung replica must not hold up what else runs on threads.
_THREADS = ThreadPoolExecutor(16, thread_name_prefix="ask-replicas")


async def ask_all(
    handle: DeploymentHandle[Any], method: str, *args: Any, timeout_s: float
) -> list[Any]:
    """Return the answer of every replica, or the exception in its place.

    The exception of a replica that does not answer in time is a TimeoutError. A replica answers
    clients before the controller has told every handle of it. A handle that knows no replica yet
    is asked again, within the same time.

    Raises:
        DeploymentUnavailableError: no replica is known in time.
        TimeoutError: Ray does not tell in time which replicas there are.
    """
    end, loop = time.monotonic() + timeout_s, asyncio.get_running_loop()
    while True:
        left = end - time.monotonic()
        # `results_async` gives no answer at all if one is missing; `results` waits for each.
        results = handle.broadcast(method, *args).results
        wait = partial(results, timeout_s=max(0.0, left), return_exceptions=True)
        try:
            answers: list[Any] = await loop.run_in_executor(_THREADS, wait)
        except DeploymentUnavailableError:
            if left < _ASK_AGAIN_S:
                raise
            await asyncio.sleep(_ASK_AGAIN_S)
        else:
            return answers


class RayReplicas:
    """`serve.api.replicas.Replicas` over a deployment, for use in one of its replicas.

    If Ray cannot ask the replicas, this one answers for itself, and counts one as missing.
    """

    def __init__(self, context: ReplicaContext, own: Any) -> None:
        """Get the handle: later the controller might not answer.

        Of this replica, `own.apply_policy(model)` gives an `Ack`, and `own.metrics_page()`
        (replica, compressed text).
        """
        self._handle = ray_serve.get_deployment_handle(context.deployment, context.app_name)
        self._own = own
        replica = context.replica_id
        self._prefix = replica.to_full_id_str().removesuffix(replica.unique_id)

    @property
    def number(self) -> int:
        # Read again each time: Ray Serve renews the context when the number changes.
        return ray_serve.get_replica_context().world_size or 1

    async def refresh_policy(self, model: str) -> Refreshed:
        replies = await self._ask_all("apply_policy", model)
        acks = sorted(Ack(*reply) for reply in replies if not isinstance(reply, BaseException))
        unconfirmed = len(replies) - len(acks)
        missing = await asyncio.to_thread(self._others, acks) if unconfirmed else []
        return Refreshed(acks, unconfirmed, missing)

    async def metrics_text(self) -> bytes:
        replies = await self._ask_all("metrics_page")
        compressed = dict(reply for reply in replies if not isinstance(reply, BaseException))
        pages = {name: zlib.decompress(page).decode() for name, page in compressed.items()}
        return merge_pages(pages, unreachable=len(replies) - len(pages))

    async def _ask_all(self, method: str, *args: Any) -> list[Any]:
        try:
            replies = await ask_all(self._handle, method, *args, timeout_s=TIMEOUT_S)
        except (RayError, RayServeException, TimeoutError) as error:
            own = getattr(self._own, method)(*args)
            replies = [*await asyncio.gather(own, return_exceptions=True), error]
        for reply in replies:
            if isinstance(reply, BaseException):
                log.warning("a replica did not answer %s: %r", method, reply)
        return replies

    def _others(self, acks: list[Ack]) -> list[str]:
        """Return the ids of replicas that have not confirmed, starting ones included."""
        names: list[str] = []
        with suppress(RayError):
            actors = ray.util.list_named_actors(all_namespaces=True)
            names = [actor["name"] for actor in actors]
        replicas = {n.removeprefix(self._prefix) for n in names if n.startswith(self._prefix)}
        return sorted(replicas - {ack.replica for ack in acks})
