"""A server whose device is lost turns red, and leaves no request waiting."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.serve.support.live_server import serving_grpc
from tests.serve.support.lost_device import MOST_ROWS, lose_device
from tests.support.patience import until


def test_requests_are_refused_at_once_and_every_probe_turns_red(
    bundle_copy: Callable[..., Path],
) -> None:
    with serving_grpc(lose_device(bundle_copy())) as server:
        server.answer(["w1"] * MOST_ROWS)
        assert server.http.get("/health/ready").status_code == 200
        with ThreadPoolExecutor(4) as pool:
            refused = list(pool.map(server.refusal, [["w1"] * (MOST_ROWS + 1)] * 4))
        assert {problem[:2] for problem in refused} == {(503, "unavailable")}
        until(lambda: server.http.get("/health/ready").status_code == 503)
        assert server.refusal("w1").code == "unavailable"
        assert server.http.get("/v2/health/ready").status_code == 503
        assert server.metric("offramp_engine_up") == 0
        with grpc.insecure_channel(server.grpc_address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            told = health.Check(health_pb2.HealthCheckRequest()).status
        assert told == health_pb2.HealthCheckResponse.NOT_SERVING
