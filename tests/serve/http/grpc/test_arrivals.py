"""Messages arrive in turns, so that those which never end take little memory and no time."""

import asyncio
import logging

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from serve.http.grpc.arrivals import Arrivals
from tests.serve.http.grpc.conftest import failure
from tests.serve.support.live_server import LiveServer

REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
CHECK = "/grpc.health.v1.Health/Check"


def test_a_client_has_half_of_the_turns_and_those_that_never_end_make_room() -> None:
    async def scenario() -> None:
        arrivals, open_turns = Arrivals(4, grace_s=0.0), list[str]()
        never = asyncio.Event()

        async def arrive(client: str) -> None:
            async with asyncio.timeout(None) as end, arrivals.turn(client, end):
                open_turns.append(client)
                try:
                    await never.wait()
                finally:
                    open_turns.remove(client)

        async with asyncio.TaskGroup() as group:
            slow = [group.create_task(refused(arrive("a"))) for _ in range(2)]
            await asyncio.sleep(0)
            assert open_turns == ["a", "a"]
            others = [group.create_task(arrive("b"))]
            await asyncio.sleep(0)
            assert open_turns == ["a", "a", "b"]
            assert not any(task.done() for task in slow)
            third = group.create_task(arrive("a"))
            await asyncio.wait(slow)
            never.set()
            await asyncio.wait([third, *others])
        assert not open_turns
        async with asyncio.timeout(None) as end, arrivals.turn("a", end):
            assert end.when() is None

    asyncio.run(scenario())


async def refused(arriving: "asyncio._CoroutineLike[None]") -> None:
    with pytest.raises(TimeoutError):
        await arriving


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
