"""gRPC of `offramp serve --standalone`: the stop, and a port that is taken."""

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2_grpc

from tests.serve.http.grpc.conftest import asked, failure, grpc_address
from tests.serve.support.live_server import LiveServer
from tests.serve.support.server_process import ServerProcess, run_offramp
from tests.support.patience import until

WORDS = ("--standalone", "--port", "0", "--precision", "fp32", "--grpc-port")
Status = health_pb2.HealthCheckResponse


def test_stop_is_announced_and_calls_in_flight_are_answered(bundle_folder: Path) -> None:
    with ServerProcess(bundle_folder, *WORDS, "0") as process, ExitStack() as stack:
        server, address = process.client(), grpc_address(process)
        channel = stack.enter_context(grpc.insecure_channel(address))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        calls = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == Status.SERVING
        changed = pool.submit(lambda: next(watch).status)
        asked_for = [calls.ModelInfer.future(asked(["w1 " * 60] * 200)) for _ in range(6)]
        until(lambda: server.metric("offramp_queue_depth") or asked_for[-1].done())
        process.send(signal.SIGTERM)
        assert changed.result() == Status.NOT_SERVING
        assert [call.code() for call in asked_for] == [grpc.StatusCode.OK] * 6
        assert process.exit_status() == 0
        assert process.output.endswith("stopped\n")
        assert failure(calls.ModelInfer, asked(["w1"]))[0] is grpc.StatusCode.UNAVAILABLE


def test_taken_port_ends_the_start(server: LiveServer, bundle_folder: Path) -> None:
    port = server.grpc_address.rpartition(":")[2]
    ended = run_offramp("serve", bundle_folder, *WORDS, port)
    assert ended.status == 2
    assert ended.error == (
        f"offramp: cannot listen on 127.0.0.1:{port}: Address already in use; choose another "
        "port or host\n"
    )
