"""A replica: models, their engines, and the HTTP app over them."""

import asyncio
import logging
import zlib
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from pydantic import ValidationError
from ray import serve as ray_serve

from serve.api.app import build_http_app
from serve.api.replicas import Ack
from serve.cluster.policy_store import RayStore
from serve.cluster.replicas import RayReplicas
from serve.config import ServerConfig, UserConfig
from serve.errors import InvalidRequest, OfframpError
from serve.http.listener import listen_shared
from serve.http.loading import app_context, assemble
from serve.http.servers import Servers
from serve.logs import configure_logs
from serve.metrics.connections import ConnectionState
from serve.runtime.process_memory import keep_objects
from serve.validation import explain

log = logging.getLogger(__name__)

# A replica that a broadcast did not reach reads the newest policy after this time at the latest.
POLL_EVERY_S = 2.0
# Of the file of log lines, which rotates.
_LOG_BYTES: Final = 100 * 1024 * 1024
_LOG_FILES: Final = 5


class Classifiers:
    """The ingress deployment; `serve.cluster.options` has its options."""

    def __init__(self, config: ServerConfig, address: tuple[str, int] | None = None) -> None:
        """Load the models.

        At an address the replica listens beside the others, from the first `reconfigure` on.
        Without one it answers Ray Serve's proxies alone.
        """
        context = ray_serve.get_replica_context()
        self._replica = context.replica_id.unique_id
        configure_logs(_log_file(self._replica), config.log_format, config.log_level)
        store = RayStore(context.app_name)
        assembly = assemble(config.bundles, config, store, config.active_exits)
        self._catalog, self._metrics = assembly.catalog, assembly.metrics
        replicas, connections = RayReplicas(context, own=self), ConnectionState()
        parts = app_context(config, assembly, replicas, connections)
        self._app = build_http_app(parts, self.stop_listening)
        self._address, self._servers = address, None
        if address:
            self._metrics.watch_connections(connections)
            self._servers = Servers(self._app, parts, config)
        self._poll: asyncio.Task[None] | None = None

    def __serve_build_asgi_app__(self) -> FastAPI:
        return self._app

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Apply the baseline policies, all or none. Refused ones leave the live policies alone.

        Ray stops a running replica whose `reconfigure` raises, and starts another with the same
        config. So only a first start raises, where no policy is live that could stay.

        Raises:
            InvalidRequest: the config is refused, and no policy is stored.
        """
        problem = await asyncio.to_thread(self._set_baselines, user_config)
        if problem:
            log.error("user_config is refused, and the live policies stay: %s", problem)
            if self._poll is None and not await asyncio.to_thread(self._catalog.adopt_stored):
                raise InvalidRequest(f"user_config: {problem}")
        self._catalog.config_problem = problem
        if self._poll is None:
            self._poll = asyncio.create_task(self._poll_policies())
            keep_objects()
            if self._servers and self._address:
                await self._servers.start(listen_shared(*self._address))

    def _set_baselines(self, user_config: dict[str, Any]) -> str | None:
        """Apply the baseline policies; return why they are refused."""
        try:
            self._catalog.set_baselines(UserConfig.model_validate(user_config).policies)
        except ValidationError as error:
            return explain(error)
        except OfframpError as error:
            return str(error)
        return None

    async def stop_listening(self) -> None:
        """Stop the servers of this replica; return when accepted requests are answered."""
        if self._servers:
            await self._servers.stop()

    def check_health(self) -> None:
        """Raise if an engine has died, so that Serve replaces the replica."""
        faults = self._catalog.faults()
        if faults:
            raise RuntimeError(f"no engine runs for {', '.join(faults)}")

    async def apply_policy(self, model: str) -> Ack:
        """Apply the newest stored policy of a model."""
        policy = self._catalog.find(model).policy
        entry = await asyncio.to_thread(policy.refresh)
        return Ack(self._replica, entry.version)

    async def metrics_page(self) -> tuple[str, bytes]:
        """Return this replica's id and its metrics as Prometheus text, compressed.

        Ray 2.60 keeps answers above 100 KiB in its object store, and a process that asks for such
        answers often may die of it (`GetOwnerAddressOrDie`). A page shrinks to a twentieth.
        """
        # On a thread, because the page has a thousand lines and more.
        page = await asyncio.to_thread(self._metrics.page)
        return self._replica, zlib.compress(page, 1)

    async def _poll_policies(self) -> None:
        while True:
            await asyncio.sleep(POLL_EVERY_S)
            try:
                for classifier in self._catalog:
                    await asyncio.to_thread(classifier.policy.refresh)
            except Exception:
                log.exception("policies could not be read; trying again in %g s", POLL_EVERY_S)


def _log_file(replica: str) -> logging.Handler:
    """Return a handler that writes beside Ray Serve's own log file of this replica."""
    for handler in logging.getLogger("ray.serve").handlers:
        target = getattr(handler, "target", handler)  # Ray buffers lines
        if isinstance(target, logging.FileHandler):
            path = Path(target.baseFilename).with_name(f"offramp_{replica}.log")
            return RotatingFileHandler(
                path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, delay=True
            )
    return logging.StreamHandler()
