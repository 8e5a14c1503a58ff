"""What the command's own process does; servers as real processes are in test_replica.py."""

import logging
import warnings
from typing import Any, cast

import pytest

from serve.cluster.local_cluster import _stop_listening

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports raise some
    from ray.exceptions import RayError
    from ray.serve.config import DeploymentID
    from ray.serve.exceptions import DeploymentUnavailableError
    from ray.serve.handle import DeploymentHandle


def test_dead_replica_does_not_end_the_wait_for_the_others_and_a_new_handle_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Handle:
        num_asked = 0

        def broadcast(self, method: str) -> "Handle":
            assert method == "stop_listening"
            self.num_asked += 1
            return self

        def results(self, timeout_s: float, return_exceptions: bool = False) -> list[Any]:
            assert return_exceptions, "the first error would end the wait for the others"
            if self.num_asked < 3:
                raise DeploymentUnavailableError(DeploymentID("Classifiers"))
            return [None, RayError("it has died")]

    handle = Handle()
    with caplog.at_level(logging.WARNING):
        _stop_listening(cast("DeploymentHandle[Any]", handle))
    assert caplog.messages == ["a replica did not stop in order: it has died"]
    assert handle.num_asked == 3
