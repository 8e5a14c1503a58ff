"""Calls to all replicas of the deployment, with Ray Serve's broadcast."""

import asyncio
import logging
import time
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar, cast

import ray
from ray import serve as ray_serve
from ray.exceptions import RayError
from ray.serve.context import ReplicaContext
from ray.serve.exceptions import DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import DeploymentDetails

from serve.api.replicas import Ack, Prepared, Refreshed, Replayed, SharedCall
from serve.classifier.model_switch import ModelSwitch
from serve.errors import LoadFailed
from serve.metrics.page import ReplicaCount, merge_pages

log = logging.getLogger(__name__)

_Made = TypeVar("_Made")

TIMEOUT_S = 5.0
# Of what may wait for other replicas' dry runs.
DRY_RUN_TIMEOUT_S = 30.0
# Of loading and warming up a bundle.
LOAD_TIMEOUT_S = 120.0
_ASK_AGAIN_S = 0.02
# What a thread may be late with the answers, before it is taken for stuck.
_LATE_S = 1.0
_COUNT_EVERY_S = 5.0
# Of its own: calls that wait for a hung replica must not hold up what else runs on threads.
_THREADS = ThreadPoolExecutor(16, thread_name_prefix="ask-replicas")


async def ask_all(
    handle: DeploymentHandle[Any], method: str, *args: Any, timeout_s: float
) -> list[Any]:
    """Return the answer of every replica, or the exception in its place.

    All of it happens on a thread, because a handle's first use waits for the cluster's head. The
    exception of a replica that does not answer in time is a TimeoutError. A replica answers clients
    before the controller has told every handle of it. A handle that knows no replica yet is asked
    again, within the same time.

    Raises:
        DeploymentUnavailableError: no replica is known in time.
        TimeoutError: Ray does not tell in time which replicas there are.
    """
    end, loop = time.monotonic() + timeout_s, asyncio.get_running_loop()
    while True:
        left = end - time.monotonic()
        ask = partial(_ask_once, handle, method, args, max(0.0, left))
        try:
            async with asyncio.timeout(left + _LATE_S):
                return await loop.run_in_executor(_THREADS, ask)
        except DeploymentUnavailableError:
            if left < _ASK_AGAIN_S:
                raise
            await asyncio.sleep(_ASK_AGAIN_S)


def _ask_once(
    handle: DeploymentHandle[Any], method: str, args: tuple[Any, ...], timeout_s: float
) -> list[Any]:
    # `results_async` gives no answer at all if one is missing; `results` waits for each.
    response = handle.broadcast(method, *args)
    return response.results(timeout_s=timeout_s, return_exceptions=True)


class RayReplicas:
    """`serve.api.replicas.Replicas` over a deployment, for use in one of its replicas.

    If Ray cannot ask the replicas, this one answers for itself, and counts one as missing.
    """

    def __init__(self, context: ReplicaContext, own: Any) -> None:
        """Get the handle, ready to ask, and the controller: later the head might not answer.

        On the event loop on which answers are made: with some settings of Ray's the handle works
        there. Of this replica, `own.apply_policy(model)` gives an `Ack`, and `own.metrics_page()`
        (replica, compressed text).
        """
        handle = ray_serve.get_deployment_handle(context.deployment, context.app_name)
        self._handle = handle.options()
        self._controller = Controller(context.app_name, context.deployment)
        self._own, self.own_id = own, context.replica_id.unique_id
        self._num_wanted = context.world_size or 1
        self._metrics = SharedCall(self._all_metrics)

    @property
    def number(self) -> int:
        return max(1, self._num_wanted)

    async def keep_counting(self) -> None:
        """Ask again and again how many replicas there are; without an answer the last one holds."""
        while True:
            with suppress(RayError, TimeoutError):
                known = await self._on_thread(self._controller.details)
                # As configured, or as the autoscaler decided.
                self._num_wanted = known.target_num_replicas
            await asyncio.sleep(_COUNT_EVERY_S)

    async def refresh_policy(self, model: str) -> Refreshed:
        return await self._refreshed("apply_policy", model)

    async def _refreshed(
        self, method: str, *args: Any, timeout_s: float | None = None
    ) -> Refreshed:
        replies = await self._ask_all(method, *args, timeout_s=timeout_s)
        acks = [reply for reply in replies if isinstance(reply, Ack)]
        acks.sort(key=lambda ack: ack.replica)
        unconfirmed = len(replies) - len(acks)
        missing: set[str] = set()
        if unconfirmed:
            with suppress(RayError, TimeoutError):
                known = await self._on_thread(self._controller.details)
                missing = {replica.replica_id for replica in known.replicas}
        return Refreshed(acks, unconfirmed, sorted(missing - {ack.replica for ack in acks}))

    async def try_on_audits(
        self, model: str, policy: str | None, here: Callable[[], Awaitable[bytes]]
    ) -> Replayed:
        replies = await self._ask_all("try_on_audits", model, policy, timeout_s=DRY_RUN_TIMEOUT_S)
        answers = [reply for reply in replies if isinstance(reply, bytes)]
        return Replayed(answers, len(replies) - len(answers))

    async def prepare_model(self, name: str, folder: str, here: ModelSwitch) -> list[Prepared]:
        replies = await self._ask_all("prepare_model", name, folder, timeout_s=LOAD_TIMEOUT_S)
        prepared = [Prepared(*reply) for reply in replies if not isinstance(reply, BaseException)]
        if (lost := len(replies) - len(prepared)) or len(prepared) < self._num_wanted:
            silent = max(lost, self._num_wanted - len(prepared))
            raise LoadFailed(
                f"{name} was not loaded, and nothing has changed: {silent} of "
                f"{max(len(replies), self._num_wanted)} replicas have not answered in time; try "
                "again when all run"
            )
        return prepared

    async def forget_model(self, name: str, here: ModelSwitch) -> None:
        await self._ask_all("forget_model", name)

    async def follow_models(self, here: ModelSwitch) -> Refreshed:
        return await self._refreshed("follow_models", timeout_s=LOAD_TIMEOUT_S)

    async def metrics_text(self) -> bytes:
        return await self._metrics()

    async def _all_metrics(self) -> bytes:
        replies = await self._ask_all("metrics_page")
        compressed = dict(reply for reply in replies if not isinstance(reply, BaseException))
        counted = ReplicaCount(wanted=self._num_wanted, running=len(replies))

        def merged() -> bytes:
            pages = {name: zlib.decompress(page).decode() for name, page in compressed.items()}
            return merge_pages(pages, len(replies) - len(pages), counted)

        return await self._on_thread(merged)

    async def _ask_all(self, method: str, *args: Any, timeout_s: float | None = None) -> list[Any]:
        try:
            replies = await ask_all(self._handle, method, *args, timeout_s=timeout_s or TIMEOUT_S)
        except (RayError, RayServeException, TimeoutError) as error:
            own = getattr(self._own, method)(*args)
            replies = [*await asyncio.gather(own, return_exceptions=True), error]
        for reply in replies:
            if isinstance(reply, BaseException):
                log.warning("a replica did not answer %s: %r", method, reply)
        return replies

    async def _on_thread(self, call: Callable[[], _Made]) -> _Made:
        return await asyncio.get_running_loop().run_in_executor(_THREADS, call)


# Names of Ray Serve's; its client gives no handle that outlives the controller's process.
_ACTOR: Final = ("SERVE_CONTROLLER_ACTOR", "serve")
_TIMEOUT_S: Final = 3.0


class Controller:
    """The controller, asked about one deployment. Calls block for some seconds at most."""

    def __init__(self, app_name: str, deployment: str) -> None:
        """Find the controller; that waits for the cluster's head."""
        self._actor: Any = ray.get_actor(*_ACTOR)
        self._deployment = app_name, deployment

    def details(self) -> DeploymentDetails:
        """Return the state of the deployment, and how many replicas it should have.

        Raises:
            RayError: the controller does not answer, or its last deployment was refused.
        """
        # Not `ray.serve.status`: it does not tell how many replicas there should be, and for it
        # the controller waits for the head.
        asked: Any = self._actor.get_deployment_details.remote(*self._deployment)
        return cast(DeploymentDetails, ray.get(asked, timeout=_TIMEOUT_S))
