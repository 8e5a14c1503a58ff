"""The contenders: how each is started, asked and read, and what its batching is."""

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loadtest.benchmarks.loads import request_bytes
from loadtest.http.client import Json
from loadtest.http.server_process import OFFRAMP
from serve.bundle.manifest import Precision

PEERS = Path(__file__).parent / "peers"
# At least so many of the labels are the whole model's: the same graph, the same weights, and
# another model that has learnt the task.
SAME_GRAPH, SAME_WEIGHTS, SAME_TASK = 0.995, 0.97, 0.7


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


class Infinity(Dialect):
    """Lists of texts, with all labels of each."""

    path = "/classify"

    def request(self, texts: Sequence[str], extra: Json) -> bytes:
        """Return a request that classifies texts."""
        return request_bytes({"model": "offramp", "input": list(texts)}, self.path)

    def results(self, answer: Any) -> list[Json]:
        """Return each text's label."""
        return [max(labels, key=lambda label: label["score"]) for labels in answer["data"]]


@dataclass(frozen=True)
class Contender:
    """One line of the table."""

    name: str
    batching: str  # its documented way, and the settings
    docs: str = ""  # its page that documents them
    health: str = ""  # path; "" without
    metrics: str = ""
    dialect: Dialect = field(default_factory=Dialect)
    environment: str = ""  # of its own, from the requirements of that name; else the project's
    file: str = ""  # what a person writes is in FILE_*.py; by its environment's name if not given
    exact: float = SAME_GRAPH  # share of the whole model's labels that it must give
    variables: Mapping[str, str] = field(default_factory=dict)
    extra: Json = field(default_factory=dict)  # fields of its requests beside the texts
    command: Sequence[str] = ()  # starts its server; a port is appended

    def files(self) -> Sequence[Path]:
        """Return what a person has to write to serve by it: what its server runs comes last."""
        if not (self.file or self.environment):
            return []
        found = sorted(PEERS.glob(f"{self.file or self.environment}_*.py"))
        front = PEERS / "fastapi_server.py"
        imported = found and f"from {front.stem} import" in found[-1].read_text()
        return [front, *found] if imported else found


_BATCH = "32 requests, 1 ms"
_TUNED = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_ENABLE_HA_PROXY": "1"}
# One core; the last shortens the end only, by half a minute.
_ONE_CORE = {
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
}
_LIVE = "/v2/health/live"
_RAY = "https://docs.ray.io/en/latest/serve/advanced-guides"
_PEERS = (
    Contender(
        "ONNX Runtime + FastAPI",
        f"25 lines of its own, {_BATCH}",
        "https://onnxruntime.ai/docs/performance/tune-performance/threading.html",
        file="fastapi",
    ),
    Contender(
        "mosec",
        f"`max_batch_size`, {_BATCH}",
        "https://mosecorg.github.io/mosec/reference/interface.html",
        health="/",
        metrics="/metrics",
        environment="mosec",
    ),
    Contender(
        "OpenVINO + FastAPI",
        "FastAPI's; NNCF's int8, one stream",
        "https://docs.openvino.ai/2025/openvino-workflow/model-optimization-guide/"
        "quantizing-models-post-training/basic-quantization-flow.html",
        environment="openvino",
        exact=SAME_WEIGHTS,
    ),
    Contender(
        "pytriton",
        "`DynamicBatcher`, 32 texts, 1 ms",
        "https://triton-inference-server.github.io/pytriton/latest/binding_configuration/",
        health=_LIVE,
        dialect=OpenInference(),
        environment="pytriton",
    ),
    Contender(
        "MLServer",
        f"`max_batch_size`, {_BATCH}, no workers",
        "https://docs.seldon.ai/mlserver/user-guide/adaptive-batching",
        health=_LIVE,
        dialect=OpenInference(),
        environment="mlserver",
    ),
    Contender(
        "LitServe",
        f"`max_batch_size`, {_BATCH}",
        "https://lightning.ai/docs/litserve/features/batching",
        health="/health",
        environment="litserve",
    ),
    Contender(
        "BentoML",
        "`batchable=True`, 32 texts, adaptive",
        "https://docs.bentoml.com/en/latest/get-started/adaptive-batching.html",
        health="/livez",
        metrics="/metrics",
        dialect=BentoDialect(),
        environment="bentoml",
    ),
    Contender(
        "infinity",
        "`--engine optimum`, 32 texts, which its pipeline runs one by one",
        "https://michaelfeil.eu/infinity/latest/cli_v2/",
        health="/health",
        metrics="/metrics",
        dialect=Infinity(),
        environment="infinity",
    ),
    Contender(
        "Ray Serve",
        f"`@serve.batch`, {_BATCH}",
        f"{_RAY}/dyn-req-batch.html",
        health="/-/healthz",
        file="ray",
    ),
    Contender(
        "Ray Serve, tuned",
        f"the same; `{'`, `'.join(_TUNED)}`",
        f"{_RAY}/performance.html",
        health="/-/healthz",
        file="ray",
        variables=_TUNED | _ONE_CORE,
    ),
    Contender("transformers pipeline", "none", file="pipeline", exact=SAME_WEIGHTS),
    Contender(
        "Model2Vec",
        "FastAPI's; distilled from this encoder, trained on SST-2",
        "https://minish.ai/packages/model2vec/training/",
        environment="model2vec",
        exact=SAME_TASK,
    ),
)


def peers(folder: Path, variables: Mapping[str, object]) -> Iterator[Contender]:
    """Yield the other servers.

    Args:
        folder: of the environments.
        variables: what their files read of the environment: MODEL, the folder that
            `write_whole_model` writes, FP32, one in fp32, CHECKPOINT, the same for PyTorch, and
            TRAIN, the task's data.
    """
    for peer in _PEERS:
        python = python_of(folder, peer.environment) if peer.environment else Path(sys.executable)
        given = {
            **variables,
            "PREPARED": folder.resolve() / peer.environment / "prepared",
            "OMP_NUM_THREADS": 1,
            # Triton starts the `python3` that it finds on PATH.
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            **peer.variables,
        }
        pairs = (f"{name}={value}" for name, value in given.items())
        yield replace(peer, command=("env", *pairs, str(python), str(peer.files()[-1])))


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
                f"{where}, {name}",
                "continuous, by layer",
                health="/health/live",
                metrics="/metrics",
                exact=SAME_GRAPH if name == "never" else 0.0,
                extra=extra | {"truncate": True},  # as the others do
                command=(*command, *flags, "--port"),
            )
