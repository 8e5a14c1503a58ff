"""Calls to all replicas of the deployment, with Ray Serve's broadcast."""

import logging
from typing import Any

from ray import serve as ray_serve
from ray.serve.handle import DeploymentHandle

from serve.api.replicas import Ack, Refreshed
from serve.metrics.page import merge_pages

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0


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
        call = self._handle.broadcast(method, *args)
        replies: list[Any] = await call.results_async(timeout_s=TIMEOUT_S, return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException):
                log.warning("a replica did not answer %s: %r", method, reply)
        return replies
