"""What is refused is counted like what is answered, so that it cannot be sent for ever."""

import asyncio
import contextlib
import gzip
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message

from serve.api.app import HttpApp
from serve.dialects.v1.dialect import V1
from serve.standalone import standalone_context
from tests.serve.api.conftest import StartServer
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, Problem, config_of

MAX_BODY_BYTES = 2**20
WRONG = {
    "empty objects": b'{"inputs": [' + b"{}," * 100_000 + b"{}]}",
    "numbers": b'{"inputs": [' + b"1," * 200_000 + b"1]}",
    "no JSON": b'{"inputs": ' + b" " * 500_000,
    "an unknown field": b'{"inputs": "w1", "x": 1}',
    "more than is taken": b" " * (MAX_BODY_BYTES + 1),
}


def send(server: LiveServer, body: bytes, **headers: str) -> httpx.Response:
    sent = {"Content-Type": "application/json", **headers}
    return server.http.post("/v1/classify", content=body, headers=sent)


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_a_key_with_a_rate_is_held_to_it_by_bodies_that_are_refused(
    start_server: StartServer, tmp_path: Path, body: bytes
) -> None:
    secret = make_key(tmp_path, "classify", rows_per_s=1)
    server = start_server(keys=tmp_path / "keys.json", max_body_bytes=MAX_BODY_BYTES)
    answers = [send(server, body, **{"X-API-Key": secret}) for _ in range(5)]
    statuses = [answer.status_code for answer in answers]
    assert statuses[0] in (400, 413, 422)
    assert 429 in statuses
    late = next(answer for answer in answers if answer.status_code == 429)
    assert Problem.of(late).code == "rate_limited"
    # A text for each 8 KiB that the server has taken of it, of which one was there.
    num_bytes = len(body) if len(body) <= MAX_BODY_BYTES else 0
    assert int(late.headers["Retry-After"]) >= num_bytes // 8192 - 5


@pytest.mark.parametrize(
    ("spaces", "cut", "status"), [(2**20 + 10, None, 413), (2**20 - 10, -4, 400), (2**20, 500, 400)]
)
def test_bodies_that_cannot_be_unpacked_are_paid_for_by_what_was_unpacked(
    start_server: StartServer, tmp_path: Path, spaces: int, cut: int | None, status: int
) -> None:
    secret = make_key(tmp_path, "classify", rows_per_s=1)
    server = start_server(keys=tmp_path / "keys.json", max_body_bytes=MAX_BODY_BYTES)
    body = gzip.compress(b" " * spaces, 9)[:cut]
    headers = {"X-API-Key": secret, "Content-Encoding": "gzip"}
    first, late = (
        server.http.post("/v2/models/tiny/infer", content=body, headers=headers) for _ in range(2)
    )
    assert (first.status_code, late.status_code) == (status, 429)
    assert int(late.headers["Retry-After"]) >= 50


def test_a_client_without_a_rate_may_send_so_much_that_is_refused(
    start_server: StartServer,
) -> None:
    server = start_server(max_body_bytes=2**22)
    good = b'{"inputs": "w1", "truncate": true' + b" " * 2**21 + b"}"
    for _ in range(12):
        assert send(server, good).status_code == 200
    bad = b'{"inputs": 1' + b" " * 2**21 + b"}"
    assert 429 in [send(server, bad).status_code for _ in range(12)]
    late = Problem.of(send(server, good))
    assert (late.status, late.code) == (429, "rate_limited")


@pytest.mark.parametrize("queued", [False, True])
def test_a_body_whose_client_leaves_is_refused_unless_its_rows_were_queued(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch, queued: bool
) -> None:
    context = standalone_context(config_of(bundle_folder, max_body_bytes=2**22))
    app, engine = HttpApp(context, [V1]), context.catalog.pick(None).engine
    # Nothing answers the rows.
    monkeypatch.setattr(engine, "submit", lambda rows: None)
    monkeypatch.setattr(engine, "check_room", lambda *counts, **client: None)
    body = b'{"inputs": "w1"' + b" " * 2**21 + b"}"
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/classify",
        "query_string": b"",
        "headers": [(b"host", b"x"), (b"content-type", b"application/json")],
    }

    async def statuses_of_leavers() -> set[int]:
        statuses = set[int]()

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            statuses.update([message["status"]] if "status" in message else [])

        for _ in range(12):
            task = asyncio.ensure_future(app(scope, receive, send))
            for _ in range(1000 if queued else 1):  # it waits once it is read
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return statuses

    assert asyncio.run(statuses_of_leavers()) == (set() if queued else {429})
