"""Health and reflection by the libraries' own stubs."""

import grpc
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
