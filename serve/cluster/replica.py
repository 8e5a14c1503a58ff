"""A replica: models, their engines, and the HTTP app over them."""

import asyncio
import logging
import zlib
from dataclasses import replace
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

import ray
from pydantic import ValidationError
from ray import serve as ray_serve

from serve.api.app import HttpApp
from serve.api.replicas import Ack, Prepared, SharedCall
from serve.assembly import app_context, assemble_served, http_app
from serve.bundle.loader import given_path
from serve.classifier.model_switch import ModelSwitch
from serve.cluster.log_socket import LogSocket
from serve.cluster.nodes import own_address
from serve.cluster.policy_store import RayStore
from serve.cluster.ray_replicas import RayReplicas
from serve.config import ServerConfig, UserConfig
from serve.dry_run.predicted import on_audits_here
from serve.errors import InvalidRequest, OfframpError, Unavailable
from serve.http.listener import listen_shared
from serve.http.settings import DRAIN_S, ConnectionState
from serve.log_output import BatchedHandler, Output, Write, configure_logs, log_output, write_stderr
from serve.metrics.metrics import Metrics
from serve.policy.database import Database
from serve.policy.model_set import ModelSet
from serve.policy.state_folder import DATABASE
from serve.policy.store import Store
from serve.runtime.process_memory import keep_objects
from serve.servers import Servers
from serve.validation import explain

log = logging.getLogger(__name__)

# A replica that a broadcast did not reach reads the newest policy after this time at the latest.
POLL_EVERY_S = 2.0
# Of the file of log lines, which rotates.
_LOG_BYTES: Final = 100 * 1024 * 1024
_LOG_FILES: Final = 5


class Classifiers:
    """The ingress deployment; `serve.cluster.deployment_options` has its options."""

    def __init__(
        self,
        config: ServerConfig,
        address: tuple[str, int] | None = None,
        lines: Path | None = None,
    ) -> None:
        """Load the models.

        At an address the replica listens beside the others, from the first `reconfigure` on.
        Without one it answers Ray Serve's proxies alone. Log lines go to the socket `lines`, to
        the config's file, or to one beside Ray Serve's own log file of this replica.
        """
        context = ray_serve.get_replica_context()
        self._replica = context.replica_id.unique_id
        self._logs = _configure_logs(config, self._replica, lines)
        self._config = config
        store: Store = RayStore(context.app_name)
        if config.state:
            store = Database(config.state / DATABASE)
        assembly = assemble_served(config, store)
        self._catalog, self._metrics = assembly.catalog, assembly.metrics
        self._metrics.node = own_address()
        # On a thread, because the page has a thousand lines and more.
        self._page = SharedCall(lambda: asyncio.to_thread(_compressed, self._metrics))
        self._replicas, connections = RayReplicas(context, own=self), ConnectionState()
        self._switch = ModelSwitch(assembly.catalog, assembly, store, config.baseline(), DRAIN_S)
        parts = app_context(config, assembly, self._replicas, connections, self._switch)
        parts = replace(parts, behind_proxy=address is None)
        self._policy_threads, self._dry_runs = parts.policy_threads, parts.dry_runs
        self._app = http_app(config, parts, self.stop_listening)
        self._address, self._servers = address, None
        if address:
            self._metrics.watch_connections(connections)
            self._servers = Servers(self._app, parts, config)
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: dict[str, Any] | None = None  # a user_config that is not applied yet

    def __serve_build_asgi_app__(self) -> HttpApp:
        return self._app

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Apply models, aliases and baseline policies, all or none. Refused ones change nothing.

        Ray stops a running replica whose `reconfigure` raises, and starts another with the same
        config. So only a first start raises, where no policy is live that could stay.

        Raises:
            InvalidRequest: the config is refused, and no policy is stored.
            Unavailable: the store of policies does not answer a first start.
        """
        await self._configure(user_config)
        if not self._tasks:
            work = self._poll_policies(), self._replicas.keep_counting()
            self._tasks = [asyncio.create_task(each) for each in work]
            keep_objects()
            if self._servers and self._address:
                await self._servers.start(listen_shared(*self._address))

    async def _configure(self, user_config: dict[str, Any]) -> None:
        self._waiting = None
        problem = await self._problem_of(user_config)
        if problem:
            log.error("user_config is refused, and all stays as it is: %s", problem)
            if not self._tasks and not await self._adopt_stored():
                raise InvalidRequest(f"user_config: {problem}")
        self._catalog.config_problem = problem

    async def _problem_of(self, user_config: dict[str, Any]) -> str | None:
        """Apply a config; return why it is refused."""
        try:
            await self._apply(UserConfig.model_validate(user_config))
        except ValidationError as error:
            return explain(error)
        except Unavailable as error:
            self._waiting = user_config  # applied when the store answers
            return str(error)
        except OfframpError as error:
            return str(error)
        return None

    async def _apply(self, wanted: UserConfig) -> None:
        """Serve the models of a config, and start them from its policies.

        Models that were loaded since then stay, if the config says what it said before.

        Raises:
            OfframpError: the config is refused, or the store does not answer.
        """
        baseline, run = self._config.baseline(wanted.models), self._policy_threads.run
        folders = self._config.bundles if wanted.bundles is None else wanted.bundles
        loadable = {given_path(folder).name for folder in folders}
        found = await self._switch.newest()
        models = {}
        if found is None or found.baseline != baseline:
            models = await self._switch.prepare_all(folders, wanted.policies)
            ModelSet().started(models, wanted.aliases, baseline)  # raises what is wrong with them
        else:
            loadable |= found.models.keys()
        await run(self._catalog.set_baselines, wanted.policies, loadable)
        await self._switch.become(models, wanted.aliases, baseline)

    async def _adopt_stored(self) -> bool:
        """Start from what is stored; tell whether there is a policy for every model."""
        found = await self._switch.newest()
        return found is not None and await self._policy_threads.run(self._catalog.adopt_stored)

    async def stop_listening(self) -> None:
        """Stop the servers of this replica; return when accepted requests are answered."""
        if self._servers:
            await self._servers.stop()
        await asyncio.to_thread(self._logs.flush)  # Ray may end this process at any time now

    def check_health(self) -> None:
        """Raise if an engine has died, so that Serve replaces the replica."""
        faults = self._catalog.faults()
        if faults:
            raise RuntimeError(f"no engine runs for {', '.join(faults)}")

    async def apply_policy(self, model: str) -> Ack:
        """Apply the newest stored policy of a model."""
        policy = self._catalog.find(model).policy
        return await self._policy_threads.run(Ack.of, self._replica, policy)

    async def prepare_model(self, name: str, folder: str) -> Prepared:
        """Load a bundle beside what is served."""
        return await Prepared.of(self._replica, self._switch, name, folder)

    async def forget_model(self, name: str) -> None:
        """Give up what was prepared for a model."""
        await self._switch.forget(name)

    async def follow_models(self) -> Ack:
        """Serve the newest stored set of models."""
        return await Ack.following(self._replica, self._switch)

    async def try_on_audits(self, model: str, policy: str | None) -> bytes:
        """Try a policy on the texts that this replica has audited."""
        return await self._dry_runs.run(on_audits_here, self._catalog.find(model), policy)

    async def metrics_page(self) -> tuple[str, bytes]:
        """Return this replica's id and its metrics as Prometheus text, compressed.

        Ray 2.60 keeps answers above 100 KiB in its object store, and a process that asks for such
        answers often may die of it (`GetOwnerAddressOrDie`). A page shrinks to a twentieth.
        """
        return self._replica, await self._page()

    async def _poll_policies(self) -> None:
        while True:
            await asyncio.sleep(POLL_EVERY_S)
            try:
                if self._waiting is not None:
                    await self._configure(self._waiting)
                await self._switch.look()
                for classifier in self._catalog:
                    await self._policy_threads.run(classifier.policy.refresh)
            except OfframpError as error:
                log.warning("models and policies stay as they are; trying again: %s", error)
            except Exception:
                log.exception("policies could not be read; trying again in %g s", POLL_EVERY_S)


def _compressed(metrics: Metrics) -> bytes:
    return zlib.compress(metrics.page(), 1)


def _configure_logs(config: ServerConfig, replica: str, lines: Path | None) -> BatchedHandler:
    write: Write
    if lines:
        write = LogSocket(lines).write
    elif config.log_file:
        write = log_output(config.log_file, replica)
    else:
        write = _beside_rays(replica)
    return configure_logs(Output(write, config.log_format), config.log_level, replica=replica)


def _beside_rays(replica: str) -> Write:
    """Return what writes beside Ray Serve's own log files."""
    here = ray.get_runtime_context()
    folder = Path(here.get_temp_dir(), here.get_session_name(), "logs", "serve")
    if not folder.is_dir():
        return write_stderr
    path = folder / f"offramp_{replica}.log"
    return _RotatedFile(path, "a", _LOG_BYTES, _LOG_FILES, "utf-8").write


class _RotatedFile(RotatingFileHandler):
    def write(self, lines: bytes) -> None:
        """Write lines to the file, or first to the next one."""
        self.emit(logging.makeLogRecord({"msg": lines.decode().removesuffix("\n")}))

    def handleError(self, record: logging.LogRecord) -> None:
        raise  # noqa: PLE0704 - it is called where an error is handled
