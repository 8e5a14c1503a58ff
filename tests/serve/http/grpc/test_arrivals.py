"""Messages arrive in turns, so that those which never end take little memory and no time."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from serve.http.grpc.arrivals import Arrivals
from tests.serve.http.grpc.conftest import failure
from tests.serve.support.live_server import LiveServer

REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
CHECK = "/grpc.health.v1.Health/Check"


class Turns:
    """Messages that arrive until they are let go."""

    def __init__(self, most: int, own_grace_s: float = 3600) -> None:
        self.arrivals, self.open = Arrivals(most, grace_s=0.0, own_grace_s=own_grace_s), list[str]()
        self._let_go = asyncio.Event()

    def begin(self, *clients: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._arrive(client)) for client in clients]

    async def end(self, *tasks: asyncio.Task[None]) -> None:
        self._let_go.set()
        await asyncio.gather(*tasks)
        assert not self.open

    async def _arrive(self, client: str) -> None:
        async with asyncio.timeout(None) as end, self.arrivals.turn(client, end):
            self.open.append(client)
            try:
                await self._let_go.wait()
            finally:
                self.open.remove(client)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_turns_of_a_client_end_for_other_clients_before_they_end_for_its_own_messages() -> None:
    async def scenario() -> None:
        turns = Turns(4)
        mine = turns.begin(*"aaa")
        await settled()
        assert turns.open == ["a", "a"]  # half of the turns
        turns.begin("b", "b")
        newcomers = turns.begin("c", "d")
        await settled()
        assert turns.open == [*"aabbcd"]  # two more for clients that have none
        assert not any(task.done() for task in mine)
        late = turns.begin("e")
        await asyncio.wait(mine[:1])
        with pytest.raises(TimeoutError):
            await mine[0]
        await settled()
        assert "e" in turns.open
        assert not mine[1].done()  # one turn for the one client that waits
        await turns.end(*mine[1:], *newcomers, *late)

    asyncio.run(scenario())


def test_turns_of_a_client_end_for_its_own_messages_in_the_end() -> None:
    async def scenario() -> None:
        turns = Turns(4, own_grace_s=0.0)
        mine = turns.begin(*"aa")
        await settled()
        third = turns.begin("a")
        await asyncio.wait(mine[:1])
        with pytest.raises(TimeoutError):
            await mine[0]
        await settled()
        assert turns.open == ["a", "a"]
        await turns.end(mine[1], *third)

    asyncio.run(scenario())


def test_streams_of_reflection_that_say_nothing_keep_no_probe_out(server: LiveServer) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        silent, end = threading.Event(), list[grpc.Call]()

        def nothing() -> Iterator[bytes]:
            silent.wait()
            yield from ()

        for _ in range(40):
            end.append(channel.stream_stream(REFLECT)(nothing()))
        try:
            check = channel.unary_unary(CHECK)
            assert all(check(b"", timeout=30, wait_for_ready=True) for _ in range(5))
        finally:
            for call in end:
                call.cancel()
            silent.set()


def test_clients_that_leave_are_not_logged_as_faults(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    of_library = logging.getLogger("grpc._cython.cygrpc")
    for error in (grpc.aio.InternalError("the client has left"), ValueError("a fault of ours")):
        of_library.error("raised by a method", exc_info=error)
    assert [str((record.exc_info or [None, None])[1]) for record in caplog.records] == [
        "a fault of ours"
    ]


@pytest.mark.parametrize("method", [REFLECT, CHECK])
def test_large_messages_without_a_key_are_refused_and_not_repeated(
    server: LiveServer, method: str
) -> None:
    asking = reflection_pb2.ServerReflectionRequest(file_by_filename="x" * 5000)
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.stream_stream(method)
        code, details = failure(lambda: next(call(iter([asking.SerializeToString()]))))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details["message"] == "the message is larger than 4096 bytes; send less"
