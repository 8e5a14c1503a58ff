"""Replicas that Ray cannot ask; a hung one as a real process is in test_replica.py."""

import asyncio
import threading
import warnings
import zlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from serve.api.replicas import Ack

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports raise some
    from ray.exceptions import RayError
    from ray.serve.config import DeploymentID
    from ray.serve.context import ReplicaContext
    from ray.serve.exceptions import DeploymentUnavailableError

    from serve.cluster import ray_replicas as replicas
    from serve.cluster.ray_replicas import RayReplicas


class Own:
    """The asking replica."""

    async def apply_policy(self, model: str) -> Ack:
        return Ack("me", 7)

    async def try_on_audits(self, model: str, policy: str | None) -> bytes:
        return b"mine"

    async def metrics_page(self) -> tuple[str, bytes]:
        return "me", zlib.compress(b"# TYPE offramp_x gauge\nofframp_x 3.0\n")


class Handle:
    """Of a deployment whose replicas Ray does not tell in time."""

    ready = False
    asked_on: threading.Thread | None = None

    def options(self) -> "Handle":
        self.ready = True
        return self

    def broadcast(self, method: str, *args: object) -> "Handle":
        assert self.ready, "its first use waits for the cluster's head"
        self.asked_on = threading.current_thread()
        return self

    def results(self, **options: object) -> list[Any]:
        raise TimeoutError


class StuckHandle(Handle):
    """Whose calls wait for a head that does not come back during the test."""

    def __init__(self) -> None:
        self.head_is_back = threading.Event()

    def broadcast(self, method: str, *args: object) -> Handle:
        self.head_is_back.wait()
        return self


class Controller:
    """That does not answer."""

    def __init__(self, app_name: str, deployment: str) -> None: ...

    def details(self) -> Any:
        raise RayError("no answer")


class Id:
    unique_id = "me"


class Context:
    app_name, deployment, replica_id, world_size = "app", "Classifiers", Id(), 2


@pytest.fixture
def handle() -> Handle:
    return Handle()


@pytest.fixture
def asked(handle: Handle, monkeypatch: pytest.MonkeyPatch) -> RayReplicas:
    monkeypatch.setattr(replicas.ray_serve, "get_deployment_handle", lambda *_: handle)
    monkeypatch.setattr(replicas, "Controller", Controller)
    return RayReplicas(cast("ReplicaContext", Context()), Own())


def test_replica_answers_for_itself_when_ray_does_not_tell_of_others(
    asked: RayReplicas, handle: Handle
) -> None:
    refreshed = asyncio.run(asked.refresh_policy("tiny"))
    assert refreshed == ([Ack("me", 7)], 1, [])
    page = asyncio.run(asked.metrics_text()).decode()
    assert 'offramp_x{replica="me"} 3.0' in page
    assert "offramp_replicas_unreachable 1.0" in page
    assert "offramp_replicas_wanted 2.0" in page
    assert handle.asked_on is not threading.current_thread()


def test_calls_that_wait_for_the_head_block_neither_the_loop_nor_the_answer(
    asked: RayReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = StuckHandle()
    monkeypatch.setattr(asked, "_handle", stuck)
    for name in ("TIMEOUT_S", "_LATE_S"):
        monkeypatch.setattr(replicas, name, 0.01)
    try:
        assert "offramp_replicas_unreachable 1.0" in asyncio.run(asked.metrics_text()).decode()
    finally:
        stuck.head_is_back.set()


def test_number_of_replicas_is_the_controllers_and_the_last_known_while_it_is_away(
    asked: RayReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter([5])
    again = asyncio.Event()

    def details(self: object) -> Any:
        for each in told:
            return SimpleNamespace(target_num_replicas=each)
        again.set()
        raise RayError("no answer")

    async def count() -> None:
        task = asyncio.create_task(asked.keep_counting())
        await again.wait()
        task.cancel()

    monkeypatch.setattr(replicas, "_COUNT_EVERY_S", 0)
    monkeypatch.setattr(Controller, "details", details)
    asyncio.run(count())
    assert asked.number == 5
    assert "offramp_replicas_wanted 5.0" in asyncio.run(asked.metrics_text()).decode()


@pytest.mark.parametrize(
    ("replies", "found"),
    [
        (None, ([b"mine"], 1)),
        ([b"mine", RayError("gone"), b"theirs"], ([b"mine", b"theirs"], 1)),
    ],
)
def test_a_dry_run_has_the_audits_of_the_replicas_that_answer_and_counts_the_others(
    asked: RayReplicas,
    handle: Handle,
    monkeypatch: pytest.MonkeyPatch,
    replies: list[Any] | None,
    found: tuple[list[bytes], int],
) -> None:
    async def here() -> bytes:
        raise AssertionError("asked through Ray")

    if replies:
        monkeypatch.setattr(handle, "results", lambda **options: replies)
    assert asyncio.run(asked.try_on_audits("tiny", "{}", here)) == found


def test_dead_replica_does_not_end_the_wait_for_others_and_a_new_handle_is_asked_again(
    handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = RayError("it has died")
    replies = iter([DeploymentUnavailableError(DeploymentID("Classifiers")), [None, dead]])

    def results(return_exceptions: bool, **_: object) -> list[Any]:
        assert return_exceptions, "the first error would end the wait for the others"
        reply = next(replies)
        if isinstance(reply, Exception):
            raise reply
        return reply

    monkeypatch.setattr(handle, "results", results)
    asked: Any = replicas.ask_all(cast("Any", handle.options()), "stop_listening", timeout_s=60)
    assert asyncio.run(asked) == [None, dead]
