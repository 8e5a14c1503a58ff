"""The server's arguments at start, and the policies that may change at any time."""

import signal
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from serve.access.web_names import allowed_host, check_cors_origin
from serve.bundle.manifest import Sha256
from serve.classifier.options import EngineLimits, EngineOptions
from serve.http.settings import ConnectionLimits
from serve.logs import LogFormat, LogLevel
from serve.policy.document import WholePolicy
from serve.policy.model_set import MAX_ALIASES, MAX_MODELS, ModelName, baseline_of


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a server in order.

    Not SIGHUP or SIGQUIT if this process was started to ignore them.
    """
    others = (signal.SIGHUP, signal.SIGQUIT)
    heeded = [number for number in others if signal.getsignal(number) is not signal.SIG_IGN]
    return (signal.SIGINT, signal.SIGTERM, *heeded)


class WebLimits(BaseModel):
    """Bounds on requests.

    Attributes:
        max_body_bytes: largest body that is read.
        max_inputs: most texts in one request.
        max_buffered_bytes: bodies that a process holds at once, small ones not counted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_body_bytes: PositiveInt = 2 * 1024 * 1024
    max_inputs: PositiveInt = 256
    max_buffered_bytes: PositiveInt = 48 * 1024 * 1024


class ServerLimits(EngineLimits, WebLimits):
    """The bounds of `offramp serve --limits`; few servers need others than these.

    Attributes:
        connections: bounds on connections; they apply where replicas listen themselves.
    """

    connections: ConnectionLimits = ConnectionLimits()


class ServerConfig(EngineOptions, ServerLimits):
    """Arguments of the server; a change restarts the replicas.

    Attributes:
        bundles: folders, each served under its name.
        bundle_sha256: hash of every bundle's manifest, by model: a replica that finds another
            bundle does not start. Where it is left out, `offramp serve` and `serve.app:build` look
            once, for all replicas.
        model_repository: folder below which bundles lie that may be loaded while the server runs;
            None for those of `bundles` alone.
        node_resource: what Ray nodes offer that may run replicas; on a cluster the bundles are
            verified on all of these before anything is deployed.
        active_exits: exit layers to use, by model; a model that is not listed uses all.
        keys: file of API keys; None lets every client do everything.
        no_auth: confirms that `keys` is left out on purpose.
        open_metrics: whether `/metrics` needs no key.
        allowed_hosts: names that clients may know the server by, `*.example.com` for any below,
            `*` for all.
        cors_origins: web pages that may ask the server, such as `https://app.example.com`; with
            keys also `*` for all.
        trusted_proxies: addresses and networks of proxies that are believed who the client is.
        state: folder of `offramp serve` that policies and counts of audits are kept in; None for
            the process alone, or the Ray cluster.
        log_file: where the server's own lines go, `{replica}` in the place of the replica's name;
            None for stderr, and in a Ray cluster for a file beside Ray Serve's own.
        log_format: how these lines look.
        log_level: level of the least important lines.
        access_log: whether every request has a line.
        dialects: wire formats that the server speaks, or `all`.
        tls_cert: PEM file with the certificate and its chain; None for plain HTTP. Like the next
            two, for replicas that listen themselves.
        tls_key: PEM file with its key.
        tls_client_ca: PEM file of CAs; clients must show a certificate of one of them.
        grpc_port: where replicas that listen themselves answer gRPC; None for not at all.
    """

    bundles: list[str] = Field(min_length=1)
    bundle_sha256: dict[str, Sha256] = {}
    model_repository: Path | None = None
    node_resource: str = "CPU"
    active_exits: dict[str, list[PositiveInt]] = {}
    keys: Path | None = None
    no_auth: bool = False
    open_metrics: bool = False
    allowed_hosts: list[str] = ["*"]
    cors_origins: list[str] = []
    trusted_proxies: list[str] = []
    state: Path | None = None
    log_file: Path | None = None
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"
    access_log: bool = False
    dialects: list[str] = ["all"]
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    grpc_port: int | None = Field(default=None, gt=0, lt=2**16)

    @model_validator(mode="after")
    def _check_web_names(self) -> Self:
        for name in self.allowed_hosts:
            allowed_host(name)
        for origin in self.cors_origins:
            check_cors_origin(origin, has_keys=self.keys is not None)
        return self

    def baseline(self, user_config: object = None) -> str:
        """Return what stands for the bundles of this config, see `baseline_of`."""
        pins = self.bundle_sha256 or {Path(folder).name: "" for folder in self.bundles}
        return baseline_of(pins, user_config)


class UserConfig(BaseModel):
    """Ray Serve's `user_config`: models and baseline policies; a change is applied in place.

    Attributes:
        bundles: folders of bundles; None for those of the config.
        aliases: further names of models.
        policies: policies by model; a model that is not listed starts from its bundle's policy.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundles: list[str] | None = Field(default=None, max_length=MAX_MODELS)
    aliases: dict[ModelName, str] = Field(default={}, max_length=MAX_ALIASES)
    policies: dict[str, WholePolicy] = {}

    @property
    def models(self) -> object:
        """What this says of models; None if nothing."""
        return [self.bundles, self.aliases] if self.bundles is not None or self.aliases else None
