import asyncio

import pytest
from starlette.types import Message

from serve.api.limits import FREE_BYTES, BodyBudget, BodyLimit
from serve.errors import Overloaded, RateLimited
from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import Problem

KIB = 1024
HEAD = (
    b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100000\r\n\r\n"
)


def body_of(*sizes: int, budget: BodyBudget, declared: int | str | None = None) -> BodyLimit:
    left = [{"type": "http.request", "body": bytes(n), "more_body": True} for n in sizes]

    async def receive() -> Message:
        return left.pop(0)

    headers = {} if declared is None else {"content-length": str(declared)}
    return BodyLimit(receive, headers, 1000 * KIB, budget)


def receive(body: BodyLimit) -> Message:
    return asyncio.run(body.receive())


def test_bodies_share_a_bound_on_what_is_held_until_their_requests_end() -> None:
    budget = BodyBudget(100 * KIB)
    first = body_of(60 * KIB, 20 * KIB, budget=budget)
    second, third = (body_of(60 * KIB, budget=budget) for _ in range(2))
    receive(first)
    receive(first)
    with pytest.raises(Overloaded, match="as many large bodies as it may"):
        receive(second)
    first.release()
    receive(third)


def test_bodies_that_arrive_together_do_not_take_the_room_from_each_other() -> None:
    budget = BodyBudget(100 * KIB)
    first, second = (body_of(KIB, 79 * KIB, budget=budget, declared=80 * KIB) for _ in range(2))
    receive(first)
    with pytest.raises(Overloaded):
        receive(second)
    receive(first)


def test_a_client_has_half_of_the_room_or_one_larger_body() -> None:
    budget = BodyBudget(100 * KIB)
    mine = [body_of(60 * KIB, budget=budget) for _ in range(3)]
    other = body_of(20 * KIB, 35 * KIB, budget=budget)
    larger = body_of(20 * KIB, 80 * KIB, budget=budget)
    for body, client in (*((body, "mine") for body in mine), (other, "other"), (larger, "mine")):
        body.client = client
    receive(mine[0])
    with pytest.raises(RateLimited, match="bytes of your other requests"):
        receive(mine[1])
    receive(other)
    receive(other)
    mine[0].release()
    receive(mine[2])
    for body in (mine[2], other):
        body.release()
    receive(larger)
    receive(larger)


@pytest.mark.parametrize(("declared", "exceeds"), [("9" * 5000, True), ("0" * 5000 + "9", False)])
def test_declared_sizes_may_have_more_digits_than_python_reads(
    declared: str, exceeds: bool
) -> None:
    # Ray Serve's proxy passes them on; our own server refuses them.
    assert body_of(budget=BodyBudget(0), declared=declared).refused is exceeds


def test_a_small_body_is_taken_however_much_is_held() -> None:
    budget = BodyBudget(0)
    receive(body_of(FREE_BYTES, budget=budget))
    with pytest.raises(Overloaded):
        receive(body_of(FREE_BYTES + 1, budget=budget))


def test_a_server_full_of_bodies_answers_429_to_large_ones_and_still_classifies(
    start_server: StartServer,
) -> None:
    server = start_server(max_body_bytes=200_000, max_buffered_bytes=200_000)
    with server.half_sent(HEAD + b" " * 90_000), server.half_sent(HEAD + b" " * 90_000):
        # Both have arrived when a request that came later is answered.
        server.answer("w1")
        response = server.post(b" " * 150_000)
        assert Problem.of(response)[:2] == (429, "rate_limited")
        assert int(response.headers["Retry-After"]) >= 1
        server.answer("w1")
    server.answer(["w1 w2"] * 20)
