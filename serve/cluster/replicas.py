"""Calls to all replicas of the deployment, with Ray Serve's broadcast."""

import asyncio
import logging
import time
from typing import Any

from ray import serve as ray_serve
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from serve.api.replicas import Ack, Refreshed
from serve.metrics.page import merge_pages

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
_ASK_AGAIN_S = 0.02


async def ask_all(
    handle: DeploymentHandle[Any], method: str, *args: Any, timeout_s: float
) -> list[Any]:
    """Return the answer of every replica, or the exception in its place.

    A replica answers clients before the controller has told every handle of it. A handle that
    knows no replica yet is asked again, within the same time.

    Raises:
        DeploymentUnavailableError: no replica is known in time.
        TimeoutError: not every replica answers in time.
    """
    end = time.monotonic() + timeout_s
    while True:
        left = end - time.monotonic()
        try:
            call = handle.broadcast(method, *args)
            answers: list[Any] = await call.results_async(timeout_s=left, return_exceptions=True)
        except DeploymentUnavailableError:
            if left < _ASK_AGAIN_S:
                raise
            await asyncio.sleep(_ASK_AGAIN_S)
        else:
            return answers


class RayReplicas:
    """`serve.api.replicas.Replicas` over a deployment, for use in one of its replicas.

    The deployment answers `apply_policy(model)` with an `Ack` and `metrics_page()` with
    (replica, text).
    """

    def __init__(self, deployment: str, app_name: str) -> None:
        self._deployment = deployment
        self._app_name = app_name
        self._handle: DeploymentHandle[Any] | None = None

    async def refresh_policy(self, model: str) -> Refreshed:
        replies = await self._ask_all("apply_policy", model)
        acks = [Ack(*reply) for reply in replies if not isinstance(reply, BaseException)]
        return Refreshed(sorted(acks), unconfirmed=len(replies) - len(acks))

    async def metrics_text(self) -> bytes:
        replies = await self._ask_all("metrics_page")
        pages = dict(reply for reply in replies if not isinstance(reply, BaseException))
        return merge_pages(pages, unreachable=len(replies) - len(pages))

    async def _ask_all(self, method: str, *args: Any) -> list[Any]:
        if self._handle is None:
            self._handle = ray_serve.get_deployment_handle(self._deployment, self._app_name)
        replies = await ask_all(self._handle, method, *args, timeout_s=TIMEOUT_S)
        for reply in replies:
            if isinstance(reply, BaseException):
                log.warning("a replica did not answer %s: %r", method, reply)
        return replies
