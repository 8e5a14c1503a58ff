"""The contenders: a name, a server, and the fields of its requests."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.bench.one_graph import write_one_graph
from loadtest.http.client import Json
from loadtest.http.server_process import OFFRAMP
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision

_PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")
_NEVER: Json = {"rule": "never"}


@dataclass(frozen=True)
class Contender:
    """One line of the table."""

    name: str
    command: Sequence[str]  # starts its server; a port is appended
    extra: Json  # fields of its requests beside `inputs`


@dataclass(frozen=True)
class ServedModel:
    """The model that all contenders serve."""

    bundle: Bundle  # for Offramp and for the one graph
    checkpoint: Path | None  # the same model for PyTorch; None leaves the pipeline out
    threads: int  # of every server
    folder: Path


def contenders(model: ServedModel, ray: bool) -> Iterator[Contender]:
    """Yield all contenders; with `ray`, one of them runs on Ray Serve."""
    if model.checkpoint:
        yield _pipeline(model, model.checkpoint)
    precisions = [p for p in _PRECISIONS if p in model.bundle.manifest.variants]
    for precision in precisions:
        yield one_graph(model, precision)
        for name, extra in policies(model.bundle):
            yield _offramp(model, precision, name, extra, "--standalone")
    if ray:
        name, extra = policies(model.bundle)[:2][-1]
        yield _offramp(model, precisions[-1], f"{name}, on Ray Serve", extra)


def policies(bundle: Bundle) -> list[tuple[str, Json]]:
    """Return names of exit choices, and the fields by which requests make them."""
    profiles = bundle.manifest.policy.profiles
    named = [(name, {"exit": name}) for name in ("balanced", "fast") if name in profiles]
    return [("never", {"exit": _NEVER}), *named]


def _offramp(
    model: ServedModel, precision: Precision, name: str, extra: Json, *options: str
) -> Contender:
    folder = str(model.bundle.folder)
    command = (OFFRAMP, "serve", folder, *options, "--precision", precision, "--port")
    return Contender(f"Offramp, {precision}, {name}", command, extra)


def one_graph(model: ServedModel, precision: Precision) -> Contender:
    """Return the whole model in one precision; its graph is written to the model's folder."""
    folder = model.folder / precision
    folder.mkdir()
    graph = write_one_graph(model.bundle, precision, folder)
    command = _server("one-graph", model, model.bundle.folder, graph)
    return Contender(f"ONNX Runtime + FastAPI, {precision}, dynamic batches", command, {})


def _pipeline(model: ServedModel, checkpoint: Path) -> Contender:
    command = _server("pipeline", model, checkpoint)
    return Contender("transformers pipeline + FastAPI, fp32, one by one", command, {})


def _server(kind: str, model: ServedModel, *files: Path) -> tuple[str, ...]:
    module, threads = "loadtest.compare.servers", ("--threads", str(model.threads))
    return (sys.executable, "-m", module, kind, *map(str, files), *threads, "--port")
