"""Calls that stay open, and messages that do not come, keep no other client out."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

import serve.http.grpc.arrivals
from serve.errors import Overloaded
from serve.http.grpc.arrivals import Arrivals
from serve.http.grpc.open_calls import OpenCalls
from serve.http.settings import ConnectionLimits
from tests.serve.http.grpc.conftest import asked, failure, stub
from tests.serve.http.grpc.raw_http2 import raw_http2
from tests.serve.support.live_server import LiveServer, serving_grpc

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
INFER = "/inference.GRPCInferenceService/ModelInfer"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.mark.parametrize("method", [CHECK, WATCH, REFLECT, INFER])
def test_calls_whose_message_does_not_come_shut_no_other_out(
    server: LiveServer, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.http.grpc.arrivals, "_PROBE_TIMEOUT_S", 60.0)
    with ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(raw_http2(server.grpc_address))
            for _ in range(200):
                client.call(method)
        channel = stack.enter_context(grpc.insecure_channel(server.grpc_address))
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        for _ in range(3):
            assert health.Check(request).status == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(request)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


def test_calls_without_messages_make_room_for_calls_with_one(bundle_folder: Path) -> None:
    limits = ConnectionLimits(max_connections=4)
    with (
        serving_grpc(bundle_folder, connections=limits) as live,
        stub(live.grpc_address) as calls,
        raw_http2(live.grpc_address) as client,
    ):
        for _ in range(20):
            client.call(INFER)
        for _ in range(5):
            assert calls.ModelInfer(asked(["w1"])).model_name == "tiny"


@contextmanager
def silent() -> Iterator[Iterator[bytes]]:
    """Give messages that never come, until the block is left."""
    ended = threading.Event()

    def never() -> Iterator[bytes]:
        ended.wait()
        yield from ()

    try:
        yield never()
    finally:
        ended.set()


@pytest.mark.parametrize("method", [CHECK, WATCH])
def test_a_probe_whose_message_does_not_come_is_ended(server: LiveServer, method: str) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel, silent() as messages:
        call = channel.stream_stream(method)
        code, _ = failure(lambda: next(call(messages)))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("method", [REFLECT, CHECK])
def test_large_messages_without_a_key_are_refused_and_not_repeated(
    server: LiveServer, method: str
) -> None:
    asking = reflection_pb2.ServerReflectionRequest(file_by_filename="x" * 5000)
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.stream_stream(method)
        code, details = failure(lambda: next(call(iter([asking.SerializeToString()]))))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "xxx" not in details["message"]


def test_clients_that_leave_are_not_logged_as_faults(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    of_library = logging.getLogger("grpc._cython.cygrpc")
    for error in (grpc.aio.InternalError("the client has left"), ValueError("a fault of ours")):
        of_library.error("raised by a method", exc_info=error)
    assert [str((record.exc_info or [None, None])[1]) for record in caplog.records] == [
        "a fault of ours"
    ]


class Turns:
    """Messages that arrive until they are let go."""

    def __init__(self, own_grace_s: float) -> None:
        self.arrivals, self.open = Arrivals(4, 0.0, own_grace_s), list[str]()
        self._let_go = asyncio.Event()

    def begin(self, clients: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._arrive(client)) for client in clients]

    async def settled(self) -> str:
        """Return the clients that have turns."""
        for _ in range(9):
            await asyncio.sleep(0)
        return "".join(self.open)

    async def end(self, tasks: list[asyncio.Task[None]]) -> list[bool]:
        """Return which messages were given up."""
        self._let_go.set()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        return [isinstance(each, TimeoutError) for each in ended]

    async def _arrive(self, client: str) -> None:
        async with asyncio.timeout(None) as end, self.arrivals.turn(client, end):
            self.open.append(client)
            try:
                await self._let_go.wait()
            finally:
                self.open.remove(client)


@pytest.mark.parametrize(
    ("clients", "late", "own_grace_s", "given_up"),
    [
        ("aaab", "", 3600, ""),  # half of the turns, and one is left
        ("aaabb", "c", 3600, "a"),  # one turn for the one client that waits
        ("aaabb", "cc", 3600, "a"),
        ("aa", "a", 0.0, "a"),  # its own message waits
    ],
)
def test_oldest_turns_of_the_client_with_the_most_end_for_messages_that_wait(
    clients: str, late: str, own_grace_s: float, given_up: str
) -> None:
    async def scenario() -> None:
        turns = Turns(own_grace_s)
        tasks = turns.begin(clients)
        assert await turns.settled() == clients.replace("aaa", "aa")
        tasks += turns.begin(late)
        await asyncio.wait(tasks, timeout=0.1)
        ended = await turns.end(tasks)
        assert [each for each, over in zip(clients + late, ended, strict=True) if over] == list(
            given_up
        )
        assert not turns.open

    asyncio.run(scenario())


def test_client_has_as_many_calls_as_it_leaves_free_and_those_that_wait_are_ended() -> None:
    async def scenario() -> None:
        calls = OpenCalls(8)
        for _ in range(4):
            calls.enter("a")
        with pytest.raises(Overloaded):
            calls.enter("a")
        calls.enter("b")
        async with asyncio.timeout(None) as first, asyncio.timeout(None) as second:
            with calls.waiting("a", first), calls.waiting("a", second):
                calls.enter("a")
                assert first.when() is not None
                assert second.when() is None
                first.reschedule(None)
                for client in "cd":
                    calls.enter(client)
                calls.enter("e")  # all are taken: the client with the most loses one
                assert second.when() is not None
                second.reschedule(None)
        with pytest.raises(Overloaded):
            calls.enter("f")
        for client in ("a",) * 5 + tuple("bcde"):
            calls.leave(client)
        for _ in range(4):
            calls.enter("f")

    asyncio.run(scenario())
