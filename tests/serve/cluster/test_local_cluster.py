"""The process that holds the cluster: signals and the end; the rest is in test_ray_app.py."""

import logging
import signal
import socket
import warnings
from typing import Any, cast

import pytest

from serve.cluster.local_cluster import RayServer, _stop_listening

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports are not free of them
    from ray.exceptions import RayError
    from ray.serve.handle import DeploymentHandle


def test_signal_stops_the_alarm_that_ray_has_set() -> None:
    """Ray's core sets it where it hears of the signal first; it would abort the process."""
    signal.alarm(60)
    try:
        with socket.socket() as address:
            RayServer(address)._on_signal(signal.SIGTERM, None)
        left_s = signal.alarm(0)
    finally:
        signal.alarm(0)
    assert left_s == 0


def test_replica_that_has_died_cuts_nobody_short(caplog: pytest.LogCaptureFixture) -> None:
    class Handle:
        def broadcast(self, method: str) -> "Handle":
            assert method == "stop_listening"
            return self

        def results(self, timeout_s: float, return_exceptions: bool = False) -> list[Any]:
            assert return_exceptions, "the first error would end the wait for the others"
            return [None, RayError("it has died")]

    handle = cast("DeploymentHandle[Any]", Handle())
    with caplog.at_level(logging.WARNING):
        _stop_listening(handle)
    assert caplog.messages == ["a replica did not stop in order: it has died"]
