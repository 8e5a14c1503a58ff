"""`offramp serve`: checks what is asked for, announces the models, and serves until a signal."""

import json
import re
import signal
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from socket import socket

from serve.access.keys import read_keys
from serve.access.proxies import TrustedProxies
from serve.announcer import Announcer
from serve.api.access import ANY_HOST, LOOPBACK_HOSTS
from serve.bundle.loader import Bundle, load_bundles
from serve.bundle.pins import pins_of
from serve.classifier.exit_choice import choose_exits
from serve.cluster.deployment_options import LocalReplicas
from serve.config import ServerConfig, stop_signals
from serve.dialects.registry import choose_dialects
from serve.errors import InvalidRequest
from serve.http.listener import (
    address_of,
    in_url,
    take_port,
    take_shared_port,
    without_brackets,
)
from serve.log_output import Output, log_output, logging_to
from serve.policy.database import Database
from serve.policy.state_folder import DATABASE, opened
from serve.rules.small import places_in_words
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, place, share_gpus
from serve.servers import tls_files

EXAMPLE = "Where is my parcel?"


@dataclass(frozen=True, slots=True)
class Launch:
    """The arguments of `offramp serve`.

    Attributes:
        config: the server's config; no allowed hosts stand for those that suit the address.
        port: 0 for any that is free; the same of `grpc_port`, which is None for no gRPC.
        gpus_per_replica: share of a GPU that each takes; None for a GPU each.
        active_exits: layers, comma separated, or `auto`; None for all.
    """

    config: ServerConfig
    host: str
    port: int
    grpc_port: int | None = None
    replicas: int = 1
    gpus_per_replica: float | None = None
    active_exits: str | None = None


def launch(wanted: Launch, standalone: bool) -> None:
    """Serve until a signal to stop, then answer the requests in flight.

    Raises:
        OfframpError: a bundle, the precision or the port cannot be had.
    """
    if standalone and (wanted.replicas > 1 or wanted.gpus_per_replica is not None):
        raise InvalidRequest(
            "--standalone is one process, on the first GPU: leave out --replicas and "
            "--gpus-per-replica, or --standalone"
        )
    config = wanted.config
    check_host(wanted.host)
    _check_access(wanted)
    output = Output(log_output(config.log_file), config.log_format)
    announcer = Announcer(config.log_format, in_log=config.log_file is not None)
    with logging_to(output, config.log_level) as log:
        _launch(wanted, standalone, announcer, output)
        log.flush()
        # Python ends with the system's own handlers, by which a late signal would kill it.
        for number in stop_signals():
            signal.signal(number, signal.SIG_IGN)
        announcer.say("stopped")


def _launch(wanted: Launch, standalone: bool, announcer: Announcer, output: Output) -> None:
    device, precision = wanted.config.device, wanted.config.precision
    bundles = load_bundles(wanted.config.bundles)
    placements = [place(bundle, device, precision) for bundle in bundles]
    gpu_share = share_gpus(placements, wanted.replicas, wanted.gpus_per_replica)
    replicas = LocalReplicas(wanted.replicas, gpu_share)
    config = _configure(wanted, bundles, placements)
    if files := tls_files(config):
        files.context()  # raises what is wrong with them
    take = take_port if standalone else take_shared_port
    with (
        take(wanted.host, wanted.port) as address,
        _grpc_address(wanted) as for_grpc,
        _state(config) as state,
    ):
        config = config.model_copy(update={"state": state})
        served = _served(config, bundles)
        for bundle in served:
            _announce(announcer, bundle, place(bundle, device, precision))
        _, port = address_of(address)
        if for_grpc:
            _, grpc_port = address_of(for_grpc)
            config = config.model_copy(update={"grpc_port": grpc_port})
        on_ready = partial(_invite, announcer, served, wanted, port, config.grpc_port)
        if standalone:
            from serve.standalone import serve_standalone

            serve_standalone(config, address, on_ready)
        else:
            from serve.cluster.local_cluster import serve_on_ray

            announcer.say("starting Ray Serve ...")
            serve_on_ray(config, address_of(address), replicas, on_ready, announcer, output)


def _grpc_address(wanted: Launch) -> AbstractContextManager[socket | None]:
    """Hold the address for gRPC, whose library takes no socket that is already bound."""
    if wanted.grpc_port is None:
        return nullcontext()
    return take_shared_port(wanted.host, wanted.grpc_port)


def _state(config: ServerConfig) -> AbstractContextManager[Path | None]:
    """Hold the folder that policies are kept in."""
    return opened(config.state) if config.state else nullcontext()


def _served(config: ServerConfig, bundles: list[Bundle]) -> list[Bundle]:
    """Return the bundles that will be served: those of the state, or else those of the command."""
    if config.state:
        from serve.assembly import served_before

        with closing(Database(config.state / DATABASE)) as database:
            stored = database.model_set()
            others = stored is not None and stored.pins != config.bundle_sha256
            if others and (found := served_before(config, database)) is not None:
                return found
    active = config.active_exits
    return [each.presenting(active[each.name]) if active else each for each in bundles]


def _configure(wanted: Launch, bundles: list[Bundle], placements: list[Placement]) -> ServerConfig:
    """Choose the active exits of every bundle."""
    config = wanted.config
    choose_dialects(config.dialects)  # raises what is wrong with them
    num_threads = max(1, available_threads() // wanted.replicas)
    active = {}
    for bundle, placement in zip(bundles, placements, strict=True):
        if wanted.active_exits is not None:
            active[bundle.name] = choose_exits(
                wanted.active_exits, bundle, placement, num_threads, config.gpu_memory_gb
            )
    # A page that a browser has loaded from elsewhere cannot use a loopback name of ours.
    usual_hosts = LOOPBACK_HOSTS if is_loopback(wanted.host) else ANY_HOST
    return config.model_copy(
        update={
            "bundles": [str(bundle.given) for bundle in bundles],
            "bundle_sha256": pins_of(bundles),
            "active_exits": active,
            "num_threads": num_threads,
            "allowed_hosts": config.allowed_hosts or list(usual_hosts),
        }
    )


def check_host(host: str) -> None:
    """Refuse what is neither an address nor a name.

    Raises:
        InvalidRequest: it is none.
    """
    if re.fullmatch(r"[\w.-]+", host) or _ip_of(host):
        return
    raise InvalidRequest(
        f"--host {host!r} is neither an address nor a name of this machine; give one such as "
        "127.0.0.1, 0.0.0.0, :: or localhost, without scheme and port"
    )


def _check_access(wanted: Launch) -> None:
    """Refuse to serve strangers by mistake, and keys that cannot be used.

    Raises:
        InvalidRequest: the address can be reached from outside, and there are no keys.
        InvalidKeys: the file of keys cannot be used.
    """
    TrustedProxies(wanted.config.trusted_proxies)  # raises what is wrong with them
    keys, no_auth = wanted.config.keys, wanted.config.no_auth
    if keys:
        read_keys(keys)
        if no_auth:
            raise InvalidRequest("--keys and --no-auth contradict each other; leave out one")
    elif not no_auth and not is_loopback(wanted.host):
        raise InvalidRequest(
            f"on {wanted.host} every machine that reaches the port could change policies; give "
            "--keys FILE (`offramp keys new` makes one), or --no-auth if that is what you want"
        )


def _ip_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(without_brackets(host))
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Tell whether an address, or a name, is this machine's own alone."""
    address = _ip_of(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _announce(announcer: Announcer, bundle: Bundle, placement: Placement) -> None:
    manifest, (device, precision) = bundle.manifest, placement
    where = precision if device == "cpu" else f"{precision} on {device}"
    announcer.say(
        f"{bundle.name}: {manifest.num_layers} layers, "
        f"exits at {places_in_words(manifest.traits.layers, manifest.small)}, {where}, "
        f"labels {', '.join(manifest.labels)}, at most {manifest.max_tokens} tokens, "
        f"bundle {bundle.version}",
        model=bundle.name,
        bundle=bundle.version,
    )


def _invite(
    announcer: Announcer, bundles: list[Bundle], wanted: Launch, port: int, grpc_port: int | None
) -> None:
    body: dict[str, str] = {"inputs": EXAMPLE}
    if len(bundles) > 1:
        body = {"model": bundles[0].name, **body}
    scheme = "https" if wanted.config.tls_cert else "http"
    url = f"{scheme}://{reachable(wanted.host)}:{port}"
    key = '-H "X-API-Key: $KEY" ' if wanted.config.keys else ""
    if grpc_port is not None:
        address = f"{reachable(wanted.host)}:{grpc_port}"
        announcer.say(f"gRPC on {address}", address=address)
    announcer.say(
        f"serving on {url} (page at /, docs at /docs)",
        f"curl {url}/v1/classify {key}-H 'Content-Type: application/json' -d '{json.dumps(body)}'",
        url=url,
    )


def reachable(host: str) -> str:
    """Return an address in a URL under which this machine reaches what listens on a host."""
    name = without_brackets(host)
    return in_url({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name))
