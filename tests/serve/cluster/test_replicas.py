"""Replicas that Ray cannot ask; a hung one as a real process is in test_replica.py."""

import asyncio
import warnings
import zlib
from typing import Any, cast

import pytest

from serve.api.replicas import Ack

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports raise some
    from ray.exceptions import RayError
    from ray.serve.context import ReplicaContext

    from serve.cluster import replicas
    from serve.cluster.replicas import RayReplicas


class Own:
    """The asking replica."""

    async def apply_policy(self, model: str) -> Ack:
        return Ack("me", 7)

    async def metrics_page(self) -> tuple[str, bytes]:
        return "me", zlib.compress(b"# TYPE offramp_x gauge\nofframp_x 3.0\n")


class Handle:
    """Of a deployment whose replicas Ray does not tell in time."""

    def broadcast(self, method: str, *args: object) -> "Handle":
        return self

    def results(self, **options: object) -> list[Any]:
        raise TimeoutError


class Id:
    unique_id = "me"

    def to_full_id_str(self) -> str:
        return "SERVE_REPLICA::app#Classifiers#me"


class Context:
    app_name, deployment, replica_id = "app", "Classifiers", Id()


def test_replica_answers_for_itself_when_ray_does_not_tell_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(all_namespaces: bool) -> list[dict[str, str]]:
        raise RayError("no answer either")

    monkeypatch.setattr(replicas.ray_serve, "get_deployment_handle", lambda *_: Handle())
    monkeypatch.setattr(replicas.ray.util, "list_named_actors", fail)
    asked = RayReplicas(cast("ReplicaContext", Context()), Own())
    refreshed = asyncio.run(asked.refresh_policy("tiny"))
    assert refreshed == ([Ack("me", 7)], 1, [])
    page = asyncio.run(asked.metrics_text()).decode()
    assert 'offramp_x{replica="me"} 3.0' in page
    assert "offramp_replicas_unreachable 1.0" in page
