"""The contenders: how each is started, asked and read, and what its batching is."""

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from loadtest.benchmarks.loads import request_bytes
from loadtest.http.client import Json
from loadtest.http.server_process import OFFRAMP
from serve.bundle.manifest import Precision

PEERS = Path(__file__).parent / "peers"
SAME_GRAPH = 0.995  # of the labels at least are the whole model's, where the graph is the same
OTHER_KERNELS = 0.98


class Dialect:
    """Requests and answers of this server's own API, which most peers' files copy."""

    path = "/v1/classify"

    def request(self, texts: Sequence[str], extra: Json) -> bytes:
        """Return a request that classifies texts."""
        body = {"inputs": texts[0] if len(texts) == 1 else list(texts)}
        return request_bytes(body | extra, self.path)

    def results(self, answer: Any) -> list[Json]:
        """Return each text's label, and exit if there is one."""
        results: list[Json] = answer["results"]
        return results


class BentoDialect(Dialect):
    """Lists of texts, which BentoML batches."""

    def request(self, texts: Sequence[str], extra: Json) -> bytes:
        """Return a request that classifies texts."""
        return request_bytes({"inputs": list(texts)}, self.path)

    def results(self, answer: Any) -> list[Json]:
        """Return each text's label."""
        found: list[Json] = answer
        return found


class OpenInference(Dialect):
    """The Open Inference Protocol, as MLServer and Triton speak it."""

    path = "/v2/models/offramp/infer"

    def request(self, texts: Sequence[str], extra: Json) -> bytes:
        """Return a request that classifies texts."""
        shape, data = [len(texts), 1], list(texts)
        given = {"name": "text", "datatype": "BYTES", "shape": shape, "data": data}
        return request_bytes({"inputs": [given]}, self.path)

    def results(self, answer: Any) -> list[Json]:
        """Return each text's label."""
        return [{"label": label} for label in answer["outputs"][0]["data"]]


class Peer(NamedTuple):
    """Another server."""

    name: str
    batching: str  # its documented way, and the settings
    health: str  # path; "" without
    metrics: str
    dialect: Dialect = Dialect()
    environment: str = ""  # of its own, from the requirements of that name; else the project's
    file: str = ""  # beside its requirements; by its environment's name if not given
    variables: Mapping[str, str] = {}
    exact: float = SAME_GRAPH


_BATCH = "32 requests, 1 ms"
_TUNED = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_ENABLE_HA_PROXY": "1"}
OIP = OpenInference()
_LIVE = "/v2/health/live"
_PEERS = (
    Peer("ONNX Runtime + FastAPI", f"25 lines of its own, {_BATCH}", "", "", file="fastapi"),
    Peer("mosec", f"`max_batch_size`, {_BATCH}", "/", "/metrics", environment="mosec"),
    Peer("Ray Serve", f"`@serve.batch`, {_BATCH}", "/-/healthz", "", file="ray"),
    Peer(
        "Ray Serve, tuned",
        f"the same; {', '.join(_TUNED)}",
        *("/-/healthz", ""),
        file="ray",
        variables=_TUNED,
    ),
    Peer("LitServe", f"`max_batch_size`, {_BATCH}", "/health", "", environment="litserve"),
    Peer(
        "BentoML",
        "`batchable=True`, 32 texts, adaptive",
        *("/livez", "/metrics", BentoDialect(), "bentoml"),
    ),
    Peer("MLServer", f"`max_batch_size`, {_BATCH}, no workers", _LIVE, "", OIP, "mlserver"),
    Peer("pytriton", "`DynamicBatcher`, 32 texts, 1 ms", _LIVE, "", OIP, "pytriton"),
    Peer("transformers pipeline", "none", "", "", file="pipeline", exact=OTHER_KERNELS),
)


@dataclass(frozen=True)
class Contender:
    """One line of the table."""

    name: str
    command: Sequence[str]  # starts its server; a port is appended
    batching: str
    health: str
    metrics: str
    dialect: Dialect = field(default_factory=Dialect)
    extra: Json = field(default_factory=dict)  # fields of its requests beside the texts
    environment: str = ""
    exact: float = 0.0  # share of the whole model's labels that it must give
    file: Path | None = None  # what a person has to write


def peers(model: Path, checkpoint: Path, folder: Path) -> Iterator[Contender]:
    """Yield the other servers.

    Args:
        model: the folder that `write_whole_model` writes.
        checkpoint: the same model for PyTorch.
        folder: of the environments.
    """
    variables = {"MODEL": model, "CHECKPOINT": checkpoint, "OMP_NUM_THREADS": 1}
    for peer in _PEERS:
        file = PEERS / f"{peer.file or peer.environment}_server.py"
        python = python_of(folder, peer.environment) if peer.environment else Path(sys.executable)
        # Triton starts the `python3` that it finds on PATH.
        path = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
        given = (f"{k}={value}" for k, value in (variables | path | dict(peer.variables)).items())
        yield Contender(
            peer.name,
            ("env", *given, str(python), str(file)),
            *peer[1:5],
            environment=peer.environment,
            exact=peer.exact,
            file=file,
        )


def python_of(folder: Path, environment: str) -> Path:
    """Return the interpreter of a peer's environment."""
    return folder.resolve() / environment / "bin" / "python"


def offramp(
    bundle: Path, profiles: Collection[str], precision: Precision = "int8"
) -> Iterator[Contender]:
    """Yield this server at full depth and with profiles, standalone and on Ray Serve."""
    asked: list[tuple[str, Json]] = [("never", {"exit": {"rule": "never"}})]
    asked += [(name, {"exit": name}) for name in ("balanced", "fast") if name in profiles]
    command = (OFFRAMP, "serve", str(bundle), "--precision", precision)
    for where, flags in (("Offramp", ("--standalone",)), ("Offramp on Ray", ())):
        for name, extra in asked if flags else asked[:2]:
            yield Contender(
                *(f"{where}, {name}", (*command, *flags, "--port"), "continuous, by layer"),
                *("/health/live", "/metrics"),
                extra=extra,
                exact=SAME_GRAPH if name == "never" else 0.0,
            )
