"""What the command's own process does; servers as real processes are in test_replica.py."""

import logging
import warnings
from typing import Any, cast

import pytest

from serve.cluster.local_cluster import _stop_listening

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports raise some
    from ray.exceptions import RayError
    from ray.serve.handle import DeploymentHandle


def test_dead_replica_does_not_end_the_wait_for_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
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
