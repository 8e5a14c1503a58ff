"""Under Ray, a replica whose device is lost is replaced."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.serve.support.live_server import LiveServer
from tests.serve.support.lost_device import MOST_ROWS, lose_device
from tests.serve.support.server_process import ServerProcess
from tests.support.patience import until

pytestmark = pytest.mark.ray


def test_replica_whose_device_is_lost_is_replaced_and_serves_again(
    bundle_copy: Callable[..., Path],
) -> None:
    folder = lose_device(bundle_copy("tiny"))
    with ServerProcess(folder, "--port", "0", "--precision", "fp32") as process:
        server = process.client()
        assert len(server.answer(["w1"] * MOST_ROWS)["results"]) == MOST_ROWS
        [lost] = process.replicas()
        assert server.refusal(["w1"] * (MOST_ROWS + 1))[:2] == (503, "unavailable")
        until(lambda: process.replicas() - {lost}, every_s=0.2)
        until(lambda: lost not in process.left(), every_s=0.2)
        with LiveServer(server.port).http as fresh:
            ready = "/health/ready"
            until(lambda: answers(fresh, ready), every_s=0.2)
            body = {"inputs": ["w1"]}
            assert fresh.post("/v1/classify", json=body).status_code == 200


def answers(http: httpx.Client, path: str) -> bool:
    try:
        return http.get(path).status_code == 200
    except httpx.TransportError:
        return False
