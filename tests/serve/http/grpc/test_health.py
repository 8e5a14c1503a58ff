"""Health and reflection by the libraries' own stubs."""

from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from serve.http.grpc.messages import HEALTH, INFERENCE, REFLECTION
from tests.serve.http.grpc.conftest import failure
from tests.serve.support.live_server import LiveServer

Status = health_pb2.HealthCheckResponse


def test_server_and_service_are_healthy_and_others_unknown(server: LiveServer) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", INFERENCE):
            request = health_pb2.HealthCheckRequest(service=name)
            assert health.Check(request).status == Status.SERVING
        unknown = health_pb2.HealthCheckRequest(service="none")
        assert failure(health.Check, unknown)[0] is grpc.StatusCode.NOT_FOUND
        watch = health.Watch(unknown)
        assert next(watch).status == Status.SERVICE_UNKNOWN
        watch.cancel()


def test_reflection_tells_services_and_their_messages(server: LiveServer) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert set(database.get_services()) == {INFERENCE, HEALTH, REFLECTION}
        pool = DescriptorPool(database)
        for name in (INFERENCE, HEALTH, REFLECTION):
            assert pool.FindServiceByName(name).methods
        request = pool.FindMessageTypeByName("inference.ModelInferRequest")
        assert request.fields_by_name["raw_input_contents"].number == 7


def test_streams_without_a_key_have_a_bound_and_make_room(server: LiveServer) -> None:
    with ExitStack() as stack:
        # Several connections share the bound.
        channels = [
            stack.enter_context(
                grpc.insecure_channel(server.grpc_address, options=[("grpc.dummy", number)])
            )
            for number in range(3)
        ]
        health = [health_pb2_grpc.HealthStub(channel) for channel in channels]
        # One after the other: of many at once, a message that takes 50 ms to come is too late.
        watches = [_watched(health[number // 200]) for number in range(400)]
        # One address has half of the 256; each further watch ends the longest one.
        for watch in watches[: 400 - 128]:
            with pytest.raises(grpc.RpcError) as caught:
                next(watch)
            error: Any = caught.value
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not watches[-128].done()
        assert health[2].Check(health_pb2.HealthCheckRequest()).status == Status.SERVING
        for watch in watches:
            watch.cancel()


def _watched(health: health_pb2_grpc.HealthStub) -> Any:
    """Return a watch that has been answered; on a busy machine a message may come too late."""
    for _ in range(20):
        watch = health.Watch(health_pb2.HealthCheckRequest())
        try:
            assert next(watch).status == Status.SERVING
            return watch
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
    raise AssertionError("twenty watches in turn were ended before their message came")
