import gzip
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

import serve.api.request
from serve.api.replicas import OnlyReplica
from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import FULL_DEPTH, LiveServer, Problem, raw_request

GOOD = '{"inputs": "w1"}'
HUGE = raw_request("/v1/classify", size=99_999_999_999, Connection="close")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": ""},
        {"Content-Type": "application/jsonx"},
        {"Content-Type": "application/vnd.api+json"},
        {"Content-Type": "*/*"},
    ],
)
def test_body_that_is_not_declared_as_json_is_refused(
    server: LiveServer, headers: dict[str, str]
) -> None:
    response = server.http.post("/v1/classify", content=GOOD.encode(), headers=headers)
    problem = Problem.of(response)
    assert (problem.status, problem.code) == (415, "unsupported_media_type")
    assert "Content-Type: application/json" in problem.message


def test_compressed_body_is_refused_as_such(server: LiveServer) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    content = gzip.compress(GOOD.encode())
    problem = Problem.of(server.http.post("/v1/classify", content=content, headers=headers))
    assert (problem.status, problem.code) == (415, "unsupported_media_type")
    assert problem.message == "send the body as it is, without a Content-Encoding"


@pytest.mark.parametrize("content_type", ["Application/JSON", "application/json; charset=utf-8"])
def test_json_is_recognised_however_it_is_written(server: LiveServer, content_type: str) -> None:
    assert server.post(GOOD, content_type).status_code == 200


def test_largest_body_is_taken_and_one_byte_more_is_not(start_server: StartServer) -> None:
    server = start_server(max_body_bytes=len(GOOD))
    assert server.post(GOOD).status_code == 200
    problem = Problem.of(server.post(GOOD + " "))
    assert (problem.status, problem.code) == (413, "body_too_large")
    assert f"larger than {len(GOOD)} bytes" in problem.message


def test_large_body_in_chunks_is_refused_though_it_declares_no_size(server: LiveServer) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 65_536

    response = server.http.post(
        "/v1/classify", content=chunks(), headers={"Content-Type": "application/json"}
    )
    assert Problem.of(response).status == 413


def test_client_that_reads_only_after_it_has_sent_all_gets_the_413(server: LiveServer) -> None:
    """Like urllib, which also asks for the connection to be closed after the answer."""
    url = f"http://127.0.0.1:{server.port}/v1/classify"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, b" " * 3_000_000, headers)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    with caught.value as response:
        assert response.code == 413
        assert json.load(response)["error"]["code"] == "body_too_large"


@pytest.mark.parametrize("bounds", [(1000, 3600.0), (10**9, 0.05)], ids=["bytes", "seconds"])
def test_what_is_read_after_a_413_is_bounded(
    server: LiveServer, bounds: tuple[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.api.request, "MAX_DISCARDED_BYTES", bounds[0])
    monkeypatch.setattr(serve.api.request, "DISCARD_S", bounds[1])
    with server.half_sent(HUGE + b" " * 1000) as connection:
        received = b""
        while chunk := connection.recv(4096):
            received += chunk
    assert received.startswith(b"HTTP/1.1 413 ")
    assert received.endswith(b"}")


def test_declared_size_is_refused_before_the_body_comes(server: LiveServer) -> None:
    with server.half_sent(HUGE) as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")
        connection.sendall(b" " * 3_000_000)  # the connection is still open


def test_body_in_chunks_is_read_whole(server: LiveServer) -> None:
    body = (GOOD[i : i + 1].encode() for i in range(len(GOOD)))
    headers = {"Content-Type": "application/json"}
    assert server.http.post("/v1/classify", content=body, headers=headers).status_code == 200


def test_request_id_is_the_clients_or_made_up_and_bounded(server: LiveServer) -> None:
    def request_id(**headers: str) -> str:
        response = server.http.get("/health/live", headers={"X-Request-Id": "", **headers})
        return response.headers["x-request-id"]

    assert request_id(**{"X-Request-Id": "mine"}) == "mine"
    assert len(request_id(**{"X-Request-Id": "x" * 5000})) == 128
    assert request_id() != request_id() != ""


def test_clients_cannot_grow_the_metrics_page(start_server: StartServer) -> None:
    server = start_server()

    def fool_around(i: int) -> None:
        name = f"x{i}" * 300
        server.http.get(f"/{name}")
        server.http.get(f"/v1/models/{name}")
        server.http.put(f"/v1/models/{name}/policy", json=FULL_DEPTH)
        server.http.request(f"X{i}".replace("0", "A"), "/v1/classify")
        server.refusal("w1", model=name)
        server.refusal("w1", exit=f"p{i}")
        server.refusal("w1", exit={"rule": "layer", "layer": 100 + i})
        server.http.get("/health/live", headers={"X-Request-Id": name})

    def series() -> int:
        return len(server.http.get("/metrics").text.splitlines())

    fool_around(0)
    server.http.get("/metrics")
    before = series()
    for i in range(1, 20):
        fool_around(i)
    assert series() == before


def test_unexpected_failure_tells_the_log_and_not_the_client(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(replicas: OnlyReplica) -> bytes:
        raise RuntimeError("secret of /etc/passwd")

    server = start_server()
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(OnlyReplica, "metrics_text", fail)
        response = server.http.get("/metrics", headers={"X-Request-Id": "mine"})
        said = "internal error; the server's log has the cause"
        assert Problem.of(response) == (500, "internal", said)
        assert response.headers["x-request-id"] == "mine"
        server.answer("w1")
    assert "request mine failed" in caplog.text
    assert "secret of /etc/passwd" in caplog.text
    assert server.metric("offramp_requests_total", code="500", route="/metrics") == 1
