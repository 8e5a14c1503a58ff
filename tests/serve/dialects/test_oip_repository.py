"""Triton's clients load and unload models, over HTTP and gRPC."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.serve.support.live_server import LiveServer, serving_grpc
from tests.serve.support.task_bundles import Kind, write_task_bundle


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    for name in ("first", "second"):
        write_task_bundle(tmp_path, Kind("single_label"), name)
    with serving_grpc(tmp_path / "first", model_repository=tmp_path) as live:
        yield live


@pytest.fixture(params=["http", "grpc"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def client_of(server: LiveServer, kind: str) -> Iterator[Any]:
    if kind == "grpc":
        with tritonclient.grpc.InferenceServerClient(server.grpc_address) as client:
            yield client
    else:
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            yield client


def index(client: Any, kind: str) -> dict[str, tuple[str, str]]:
    if kind == "grpc":
        listed = client.get_model_repository_index(as_json=True).get("models", [])
    else:
        listed = client.get_model_repository_index()
    return {each["name"]: (each["state"], each.get("reason", "")) for each in listed}


def answers(client: Any, kind: str, model: str) -> bool:
    module = tritonclient.grpc if kind == "grpc" else tritonclient.http
    text = module.InferInput("TEXT", [1, 1], "BYTES")
    text.set_data_from_numpy(np.array([["w1"]], np.object_))
    return bool(client.infer(model, [text]).as_numpy("label").size)


def test_tritons_client_loads_and_unloads(server: LiveServer, kind: str) -> None:
    ready, away = ("READY", ""), ("UNAVAILABLE", "not loaded")
    with client_of(server, kind) as client:
        assert index(client, kind) == {"first": ready, "second": away}
        client.load_model("second")
        assert client.is_model_ready("second")
        assert index(client, kind) == {"first": ready, "second": ready}
        assert answers(client, kind, "second")
        server.http.put("/v1/aliases/mood", json={"model": "second"})
        assert answers(client, kind, "mood")
        server.http.delete("/v1/aliases/mood")
        client.unload_model("second")
        assert not client.is_model_ready("second")
        assert index(client, kind) == {"first": ready, "second": away}


def test_refusals_are_in_the_protocols_form(server: LiveServer, kind: str) -> None:
    with client_of(server, kind) as client:
        for call, arguments, said in (
            (client.load_model, {}, "no bundle 'third' in the model repository"),
            (client.unload_model, {}, "no model 'third'; served are first"),
            (client.load_model, {"config": "{}"}, "parameters: 'config' is not taken"),
        ):
            with pytest.raises(InferenceServerException) as caught:
                call("third", **arguments)
            assert said in str(caught.value)
        assert index(client, kind)["first"] == ("READY", "")
