"""The real HTTP app under the real HTTP server, in a thread of the test's process."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families

from serve.api.app import HttpApp
from serve.api.context import AppContext
from serve.api.route import described
from serve.assembly import http_app
from serve.config import ServerConfig
from serve.dialects.v1.dialect import V1
from serve.http.grpc.server import GrpcServer
from serve.http.listener import listen, take_port, take_shared_port
from serve.http.server import HttpServer
from serve.http.settings import ConnectionLimits, ConnectionState
from serve.servers import tls_files
from serve.standalone import build_standalone_app, standalone_context
from tests.support.patience import until

TIMEOUT_S = 60.0

# A change of a policy, whatever the version is.
FULL_DEPTH: dict[str, Any] = {"policy": {"default": {"rule": "never"}}, "version": None}


def request_of(content: bytes) -> bytes:
    """Return the bytes of a request to classify what a body asks for."""
    head = (
        b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n"
    )
    return head % len(content) + content


class Problem(NamedTuple):
    """An answer that is not 2xx; making one checks its shape."""

    status: int
    code: str
    message: str

    @classmethod
    def of(cls, response: httpx.Response) -> "Problem":
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-request-id"]
        body = response.json()
        assert set(body) == {"error"}
        assert set(body["error"]) == {"code", "message"}
        assert body["error"]["message"]
        return cls(response.status_code, **body["error"])


def raw_request(
    path: str, body: bytes = b"", size: int | None = None, method: str = "POST", **headers: str
) -> bytes:
    """Return a request of JSON, which may declare another size than that of its body."""
    given = {"Host": "localhost", "Content-Type": "application/json", **headers}
    given["Content-Length"] = str(len(body) if size is None else size)
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


class LiveServer:
    """A listening server, seen from outside."""

    def __init__(self, port: int, grpc_port: int | None = None) -> None:
        self.port = port
        self.grpc_address = f"127.0.0.1:{grpc_port}"
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            timeout=TIMEOUT_S,
            transport=httpx.HTTPTransport(verify=False),  # reading certificates takes a while
        )

    def put_policy(
        self, policy: Any, model: str = "tiny", version: int | None = None
    ) -> httpx.Response:
        body = {"policy": policy, "version": version}
        return self.http.put(f"/v1/models/{model}/policy", json=body)

    def post(self, body: str | bytes, content_type: str = "application/json") -> httpx.Response:
        """Send a body to be classified, as it is."""
        content = body.encode() if isinstance(body, str) else body
        headers = {"Content-Type": content_type}
        return self.http.post("/v1/classify", content=content, headers=headers)

    def classify(self, inputs: Any, **fields: Any) -> httpx.Response:
        """Ask for a classification."""
        return self.http.post("/v1/classify", json={"inputs": inputs, **fields})

    def answer(self, inputs: Any, **fields: Any) -> dict[str, Any]:
        """Return the answer to a request that must succeed."""
        response = self.classify(inputs, **fields)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def layers(self, inputs: Any, **fields: Any) -> list[int]:
        """Return the layers where the texts of a request leave."""
        return [result["exit"]["layer"] for result in self.answer(inputs, **fields)["results"]]

    def refusal(self, inputs: Any, **fields: Any) -> Problem:
        """Return the error of a request that must fail."""
        return Problem.of(self.classify(inputs, **fields))

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that bear these labels."""
        page = self.http.get("/metrics").text
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    @contextlib.contextmanager
    def half_sent(self, request: bytes) -> Iterator[socket.socket]:
        """Open a connection on which only this much is sent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(request)
            yield connection


@contextlib.contextmanager
def listening(
    app: HttpApp,
    limits: ConnectionLimits = ConnectionLimits(),
    state: ConnectionState | None = None,
    grpc_server: GrpcServer | None = None,
) -> Iterator[LiveServer]:
    """Serve an app on a free port until the block is left, and gRPC on another one."""
    loop = asyncio.new_event_loop()
    started, ended = threading.Event(), asyncio.Event()

    async def serve() -> None:
        server = HttpServer(app, limits, state, describe=described)
        async with app.lifespan():
            await server.start(address)
            if grpc_server:
                await grpc_server.start(*for_grpc.getsockname())
            started.set()
            await ended.wait()
            if grpc_server:
                await grpc_server.stop(grace_s=0)
            await server.stop(grace_s=0)

    with (
        take_port("127.0.0.1", 0) as address,
        take_shared_port("127.0.0.1", 0) as for_grpc,
        ThreadPoolExecutor(1) as pool,
    ):
        listen(address)
        port = address.getsockname()[1]
        served = pool.submit(loop.run_until_complete, serve())
        try:
            until(lambda: started.is_set() or served.done())
            live = LiveServer(port, for_grpc.getsockname()[1])
            with live.http:
                yield live
        finally:
            loop.call_soon_threadsafe(ended.set)
            served.result()
            loop.close()


def config_of(*folders: Path, **config: Any) -> ServerConfig:
    """Return a config for bundles in fp32 on one thread, or with other fields."""
    fields = {"precision": "fp32", "num_threads": 1, **config}
    return ServerConfig(bundles=list(map(str, folders)), **fields)


def serving_bundles(*folders: Path, **config: Any) -> contextlib.AbstractContextManager[LiveServer]:
    """Serve bundles as `config_of` says."""
    wanted, state = config_of(*folders, **config), ConnectionState()
    return listening(build_standalone_app(wanted, state), wanted.connections, state)


def serving_grpc(*folders: Path, **config: Any) -> contextlib.AbstractContextManager[LiveServer]:
    """Serve bundles as `serving_bundles` does, by gRPC too."""
    wanted = config_of(*folders, **config)
    context = standalone_context(wanted)
    grpc_server = GrpcServer(context, wanted.connections, tls_files(wanted))
    app, state = http_app(wanted, context), context.connections
    return listening(app, wanted.connections, state, grpc_server)


def serving(context: AppContext) -> contextlib.AbstractContextManager[LiveServer]:
    """Serve models that the test changes in its own way."""
    return listening(HttpApp(context, [V1]))
