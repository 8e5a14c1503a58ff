"""`offramp serve`: checks what is asked for, announces the models, and serves until a signal."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import socket

from rich.console import Console

from serve.bundle.loader import Bundle, load_bundles
from serve.classifier.exit_choice import choose_exits
from serve.config import ConnectionLimits, ServerConfig
from serve.errors import InvalidRequest
from serve.http.listener import take_port, take_shared_port
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, place

EXAMPLE = "The movie was awesome."


@dataclass(frozen=True, slots=True)
class Launch:
    """The arguments of `offramp serve`."""

    bundles: tuple[Path, ...]
    host: str
    port: int
    precision: str
    replicas: int
    active_exits: str | None
    device: str = "auto"
    gpu_memory_gb: float | None = None
    connections: ConnectionLimits = ConnectionLimits()


def launch(wanted: Launch, standalone: bool) -> None:
    """Serve until SIGINT or SIGTERM, then answer the requests in flight.

    Raises:
        OfframpError: a bundle, the precision or the port cannot be had.
    """
    if standalone and wanted.replicas > 1:
        raise InvalidRequest("--standalone is one process: leave out --replicas, or --standalone")
    console = Console(soft_wrap=True, highlight=False)
    bundles = load_bundles(wanted.bundles)
    config = _configure(wanted, bundles, console)
    take = take_port if standalone else take_shared_port
    with take(wanted.host, wanted.port) as address:
        port = address.getsockname()[1]
        on_ready = partial(_print_example, console, bundles, wanted.host, port)
        if standalone:
            _run_standalone(config, address, on_ready)
        else:
            _run_on_ray(console, config, wanted.replicas, address, on_ready)
    console.print("stopped")


def _configure(wanted: Launch, bundles: list[Bundle], console: Console) -> ServerConfig:
    """Choose device, precision and active exits of every bundle, and print them."""
    num_threads = max(1, available_threads() // wanted.replicas)
    active = {}
    for bundle in bundles:
        placement, presented = place(bundle, wanted.device, wanted.precision), bundle
        if wanted.active_exits is not None:
            layers = choose_exits(
                wanted.active_exits, bundle, placement, num_threads, wanted.gpu_memory_gb
            )
            active[bundle.name], presented = layers, bundle.presenting(layers)
        _announce(console, presented, placement)
    return ServerConfig(
        bundles=[str(bundle.folder) for bundle in bundles],
        device=wanted.device,
        precision=wanted.precision,
        gpu_memory_gb=wanted.gpu_memory_gb,
        active_exits=active,
        num_threads=num_threads,
        connections=wanted.connections,
    )


def _run_standalone(config: ServerConfig, address: socket, on_ready: Callable[[], None]) -> None:
    from serve.http.standalone import serve_standalone

    serve_standalone(config, address, on_ready)


def _run_on_ray(
    console: Console,
    config: ServerConfig,
    replicas: int,
    address: socket,
    on_ready: Callable[[], None],
) -> None:
    from serve.cluster.local_cluster import serve_on_ray

    console.print("starting Ray Serve ...")
    stopping = partial(console.print, "stopping: answering what is in flight ...")
    serve_on_ray(config, address.getsockname(), replicas, on_ready, stopping)


def _announce(console: Console, bundle: Bundle, placement: Placement) -> None:
    manifest = bundle.manifest
    console.print(
        f"{bundle.name}: {manifest.num_layers} layers, "
        f"exits at {', '.join(map(str, manifest.exit_layers))}, {_where(placement)}, "
        f"labels {', '.join(manifest.labels)}, at most {manifest.max_tokens} tokens"
    )


def _where(placement: Placement) -> str:
    device, precision = placement
    return precision if device == "cpu" else f"{precision} on {device}"


def _print_example(console: Console, bundles: list[Bundle], host: str, port: int) -> None:
    body = {"inputs": EXAMPLE}
    if len(bundles) > 1:
        body = {"model": bundles[0].name, **body}
    url = f"http://{_reachable(host)}:{port}"
    console.print(
        f"serving on {url} (docs at /docs); try\n  curl {url}/v1/classify "
        f"-H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    )


def _reachable(host: str) -> str:
    return "127.0.0.1" if host == "0.0.0.0" else host
