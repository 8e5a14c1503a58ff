"""Calls that stay open keep no other client out."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import serve.access.held_bytes
import serve.http.grpc.reading
from serve.access.keys import Key, KeyLimits, new_key
from serve.config import ConnectionLimits
from serve.errors import Overloaded
from serve.http.grpc.open_calls import OpenCalls
from tests.serve.http.grpc.conftest import asked, failure, stub
from tests.serve.http.grpc.raw_http2 import raw_http2
from tests.serve.support.live_server import LiveServer, serving_grpc
from tests.support.patience import until

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
INFER = "/inference.GRPCInferenceService/ModelInfer"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.mark.parametrize("method", [CHECK, WATCH, REFLECT, INFER])
def test_calls_whose_message_does_not_come_shut_no_other_out(
    server: LiveServer, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.http.grpc.reading, "_PROBE_TIMEOUT_S", 60.0)
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


def test_call_is_in_flight_until_its_answer_is_taken(
    bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.access.held_bytes, "FREE_BYTES", 10)
    limits = KeyLimits(in_flight=1)
    key = Key(name="one", sha256="0" * 64, scopes=("classify",), limits=limits)
    bearer = (("x-api-key", new_key(key, tmp_path / "keys.json")),)
    with (
        serving_grpc(bundle_folder, keys=tmp_path / "keys.json", open_metrics=True) as live,
        stub(live.grpc_address) as calls,
        raw_http2(live.grpc_address, window=0) as client,
    ):
        asking = asked(["w1"])
        stream = client.call(INFER, asking.SerializeToString(), bearer)
        until(lambda: live.metric("offramp_unsent_bytes"))
        code, trailing = failure(calls.ModelInfer, asking, metadata=bearer)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "has 1 requests in flight" in trailing["message"]
        client.take(stream)
        until(lambda: not live.metric("offramp_unsent_bytes"))
        assert calls.ModelInfer(asking, metadata=bearer).model_name == "tiny"


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
