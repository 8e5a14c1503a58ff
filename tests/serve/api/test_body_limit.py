import asyncio

import pytest
from starlette.types import Message

from serve.access.held_bytes import HeldBytes
from serve.api.request import BodyLimit
from serve.errors import BodyTooLarge, Overloaded
from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import Problem, raw_request

KIB = 1024


def body_of(*sizes: int, bodies: HeldBytes, declared: int | str | None = None) -> BodyLimit:
    left = [{"type": "http.request", "body": bytes(n), "more_body": True} for n in sizes]

    async def receive() -> Message:
        left[-1]["more_body"] = False
        return left.pop(0)

    headers = {} if declared is None else {"content-length": str(declared)}
    return BodyLimit(receive, headers, 1000 * KIB, bodies)


def read(body: BodyLimit) -> int:
    return len(asyncio.run(body.read()))


def test_room_is_taken_for_the_whole_declared_body_until_its_request_ends() -> None:
    bodies = HeldBytes(100 * KIB, "bodies")
    first = body_of(KIB, declared=80 * KIB, bodies=bodies)
    assert read(first) == KIB
    with pytest.raises(Overloaded):
        read(body_of(KIB, 79 * KIB, declared=80 * KIB, bodies=bodies))
    first.release()
    assert read(body_of(80 * KIB, bodies=bodies)) == 80 * KIB
    with pytest.raises(BodyTooLarge):
        read(body_of(800 * KIB, 300 * KIB, bodies=HeldBytes(1000 * KIB, "bodies")))


@pytest.mark.parametrize(("declared", "exceeds"), [("9" * 5000, True), ("0" * 5000 + "9", False)])
def test_declared_sizes_may_have_more_digits_than_python_reads(
    declared: str, exceeds: bool
) -> None:
    # Ray Serve's proxy passes them on; our own server refuses them.
    assert body_of(bodies=HeldBytes(0, "bodies"), declared=declared).refused is exceeds


def test_a_server_full_of_bodies_answers_429_to_large_ones_and_still_classifies(
    start_server: StartServer,
) -> None:
    server = start_server(max_body_bytes=200_000, max_buffered_bytes=200_000)
    most = raw_request("/v1/classify", b" " * 90_000, size=100_000)
    with server.half_sent(most), server.half_sent(most):
        # Both have arrived when a request that came later is answered.
        server.answer("w1")
        response = server.post(b" " * 150_000)
        assert Problem.of(response)[:2] == (429, "rate_limited")
        assert int(response.headers["Retry-After"]) >= 1
        server.answer("w1")
    server.answer(["w1 w2"] * 20)
