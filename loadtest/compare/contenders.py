"""Who is compared: a name, a server, and what its requests say beyond the text."""

import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.bench.one_graph import write_one_graph
from loadtest.http.client import Json
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision

OFFRAMP = str(Path(sysconfig.get_path("scripts")) / "offramp")
_PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")
_NEVER: Json = {"rule": "never"}


@dataclass(frozen=True)
class Contender:
    """One line of the table.

    Attributes:
        name: for the reader.
        command: starts its server; a port is put behind it.
        extra: fields of its requests beside `inputs`.
    """

    name: str
    command: Sequence[str]
    extra: Json


@dataclass(frozen=True)
class Subject:
    """What all of them serve, and with what.

    Attributes:
        bundle: for Offramp, and for the whole model as one graph.
        checkpoint: the same model for PyTorch; None leaves the pipeline out.
        threads: for every server.
        folder: for the one graphs.
    """

    bundle: Bundle
    checkpoint: Path | None
    threads: int
    folder: Path


def contenders(subject: Subject, ray: bool) -> Iterator[Contender]:
    """Yield everybody who takes part.

    Args:
        subject: what is served.
        ray: Ray Serve too, with one replica.
    """
    if subject.checkpoint:
        yield _pipeline(subject, subject.checkpoint)
    variants = subject.bundle.manifest.variants
    precisions = [precision for precision in _PRECISIONS if precision in variants]
    for precision in precisions:
        yield _one_graph(subject, precision)
        yield from _offramp(subject, precision)
    if ray:
        yield _on_ray(subject, precisions[-1])


def _policies(bundle: Bundle) -> list[tuple[str, Json]]:
    profiles = bundle.manifest.policy.profiles
    named = [(name, {"exit": name}) for name in ("balanced", "fast") if name in profiles]
    return [("never", {"exit": _NEVER}), *named]


def _offramp(subject: Subject, precision: Precision) -> Iterator[Contender]:
    folder = str(subject.bundle.folder)
    command = (OFFRAMP, "serve", folder, "--standalone", "--precision", precision, "--port")
    for name, extra in _policies(subject.bundle):
        yield Contender(f"Offramp, {precision}, {name}", command, extra)


def _on_ray(subject: Subject, precision: Precision) -> Contender:
    name, extra = _policies(subject.bundle)[:2][-1]
    folder = str(subject.bundle.folder)
    command = (OFFRAMP, "serve", folder, "--precision", precision, "--port")
    return Contender(f"Offramp, {precision}, {name}, on Ray Serve", command, extra)


def _one_graph(subject: Subject, precision: Precision) -> Contender:
    folder = subject.folder / precision
    folder.mkdir()
    graph = write_one_graph(subject.bundle, precision, folder)
    command = _module("one_graph_server", subject.bundle.folder, graph, subject.threads)
    return Contender(f"ONNX Runtime + FastAPI, {precision}, dynamic batches", command, {})


def _pipeline(subject: Subject, checkpoint: Path) -> Contender:
    command = _module("pipeline_server", checkpoint, subject.threads)
    return Contender("transformers pipeline + FastAPI, fp32, one by one", command, {})


def _module(name: str, *arguments: object) -> tuple[str, ...]:
    *files, threads = map(str, arguments)
    module = f"loadtest.compare.{name}"
    return (sys.executable, "-m", module, *files, "--threads", threads, "--port")
