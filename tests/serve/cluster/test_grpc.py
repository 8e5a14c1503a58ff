"""gRPC under `offramp serve` on Ray Serve: two replicas on one port."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import InferenceServerClient, service_pb2_grpc

from tests.serve.http.grpc.conftest import asked, grpc_address, texts
from tests.serve.support.server_process import ServerProcess
from tests.support.patience import until

pytestmark = pytest.mark.ray

INFER = "/inference.GRPCInferenceService/ModelInfer"


def replicas_that_answered(page: str) -> set[str]:
    return {
        sample.labels["replica"]
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "offramp_requests_total"
        and (sample.labels["route"], sample.labels["code"]) == (INFER, "200")
    }


def test_both_replicas_answer_on_one_port_and_calls_in_flight_outlive_the_stop(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--replicas", "2", "--port", "0", "--grpc-port", "0")
    with TemporaryDirectory(prefix="ray-") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        with ServerProcess(bundle_folder, *options) as process:
            server = process.client()
            address = grpc_address(process)

            def ask() -> set[str]:
                # Connections of their own: one stays with its replica.
                with InferenceServerClient(
                    address, channel_args=[("grpc.use_local_subchannel_pool", 1)]
                ) as client:
                    client.infer("tiny", [texts(["w1", "w2 w3"])])
                return replicas_that_answered(server.http.get("/metrics").text)

            until(lambda: len(ask()) == 2, timeout_s=60)
            with grpc.insecure_channel(address) as channel, ThreadPoolExecutor(1) as pool:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
                assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
                changed = pool.submit(lambda: next(watch).status)
                calls = [stub.ModelInfer.future(asked(["w1 " * 60] * 200)) for _ in range(6)]
                until(lambda: server.metric("offramp_queue_depth") or calls[-1].done())
                process.send(signal.SIGTERM)
                assert changed.result() == health_pb2.HealthCheckResponse.NOT_SERVING
                assert [call.code() for call in calls] == [grpc.StatusCode.OK] * 6
            assert process.exit_status() == 0
            assert "Error" not in process.output
            assert "Traceback" not in process.output
