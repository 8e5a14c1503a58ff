"""Triton's own gRPC client against a running server."""

import json
import math
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput, service_pb2
from tritonclient.utils import InferenceServerException

from serve.api.shown import short
from serve.bundle.loader import MANIFEST, sha256_of
from tests.serve.http.grpc.conftest import asked, failure, stub, texts
from tests.serve.support.live_server import LiveServer
from tests.support.tiny import WORDS

LABELS = ("negative", "neutral", "positive")


def check(found: Any, own: dict[str, Any]) -> None:
    """Compare an answer with that of `/v1/classify`, every bit of it."""
    scores = [[result["scores"][label] for label in LABELS] for result in own["results"]]
    shown = [[short(value) for value in row] for row in found.as_numpy("probabilities")]
    assert shown == scores
    labels = [label.decode() for label in found.as_numpy("label").ravel()]
    assert labels == [result["label"] for result in own["results"]]
    layers = found.as_numpy("exit_layer").ravel().tolist()
    assert layers == [result["exit"]["layer"] for result in own["results"]]


def ids(rows: list[list[int]]) -> InferInput:
    tensor = InferInput("input_ids", [len(rows), len(rows[0])], "INT64")
    tensor.set_data_from_numpy(np.array(rows))
    return tensor


@pytest.mark.parametrize(
    ("tensors", "own"),
    [
        ([texts(["w1 w2 w3"])], ["w1 w2 w3"]),
        ([texts(["w1", "w2 w3", "w4 " * 40])], ["w1", "w2 w3", "w4 " * 40]),
        ([texts(["w1"]), texts(["w2"], "TEXT_PAIR")], [{"text": "w1", "text_pair": "w2"}]),
        ([ids([[2, 7, 9, 3]])], [{"input_ids": [2, 7, 9, 3]}]),
    ],
)
def test_answers_are_those_of_our_own_route(
    server: LiveServer, client: InferenceServerClient, tensors: list[InferInput], own: list[Any]
) -> None:
    found = client.infer("tiny", tensors, request_id="mine", model_version="1")
    check(found, server.answer(own))
    assert found.get_response().id == "mine"


def test_typed_contents_are_answered_with_typed_contents(
    server: LiveServer, client: InferenceServerClient
) -> None:
    raw = client.infer("tiny", [texts(["w1", "w2"])])
    with stub(server.grpc_address) as typed:
        answer = typed.ModelInfer(asked(["w1", "w2"]))
    assert not answer.raw_output_contents
    outputs = {output.name: output.contents for output in answer.outputs}
    probabilities = np.array(outputs["probabilities"].fp32_contents, np.float32)
    assert probabilities.tobytes() == raw.as_numpy("probabilities").tobytes()
    assert list(outputs["label"].bytes_contents) == raw.as_numpy("label").ravel().tolist()
    assert list(outputs["exit_layer"].int_contents) == raw.as_numpy("exit_layer").ravel().tolist()


@pytest.mark.parametrize("place", ["parameters", "headers"])
def test_dial_is_in_parameters_or_metadata(
    server: LiveServer, client: InferenceServerClient, place: str
) -> None:
    rule = {"rule": "layer", "layer": 2}
    name = "exit" if place == "parameters" else "x-offramp-exit"
    found = client.infer("tiny", [texts(["w1"])], **{place: {name: json.dumps(rule)}})
    own = server.answer(["w1"], exit=rule)
    check(found, own)
    assert found.as_numpy("exit_reason").tolist() == [[b"layer"]]
    version = found.get_response().parameters["policy_version"].int64_param
    assert version == own["policy_version"]


def test_classes_and_named_outputs_come_as_asked(client: InferenceServerClient) -> None:
    wanted = [InferRequestedOutput("probabilities", class_count=2), InferRequestedOutput("logits")]
    found = client.infer("tiny", [texts(["w1"])], outputs=wanted)
    best = int(found.as_numpy("logits")[0].argmax())
    first = found.as_numpy("probabilities")[0, 0].decode().split(":")
    assert (int(first[1]), first[2]) == (best, LABELS[best])
    assert found.as_numpy("label") is None


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"model_name": "none"}, "NOT_FOUND"),
        ({"model_version": "2"}, "NOT_FOUND"),
        ({"inputs": [texts([""])]}, "INVALID_ARGUMENT"),
        ({"inputs": [texts(["w1 " * 99])]}, "INVALID_ARGUMENT"),
        ({"parameters": {"exit": "{"}}, "INVALID_ARGUMENT"),
        ({"headers": {"x-offramp-priority": "now"}}, "INVALID_ARGUMENT"),
        ({"outputs": [InferRequestedOutput("none")]}, "INVALID_ARGUMENT"),
        ({"timeout": 1}, "DEADLINE_EXCEEDED"),
        ({"compression_algorithm": "gzip"}, "UNIMPLEMENTED"),
        ({"inputs": [texts(["w1 " * 1_000_000])]}, "RESOURCE_EXHAUSTED"),
    ],
)
def test_what_cannot_be_had_is_refused_with_its_code(
    client: InferenceServerClient, options: dict[str, Any], code: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.infer(**{"model_name": "tiny", "inputs": [texts(["w1"])], **options})
    assert caught.value.status() == f"StatusCode.{code}"
    assert client.infer("tiny", [texts(["w1"])]).as_numpy("label").shape == (1, 1)


def by_hand(raw: list[bytes], size: int | None = None, typed: bool = False) -> Any:
    """Return a request of one text with raw contents."""
    request = asked(["w1"])
    if not typed:
        request.inputs[0].ClearField("contents")
    if size is not None:
        request.inputs[0].parameters["binary_data_size"].int64_param = size
    request.raw_input_contents.extend(raw)
    return request


def shared() -> Any:
    request = asked(["w1"])
    request.inputs[0].parameters["shared_memory_region"].string_param = "mine"
    return request


RAW = b"\x02\0\0\0w1"


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (by_hand([RAW], size=6), None),  # as KServe says it
        (by_hand([RAW], size=7), "invalid_tensor"),
        (by_hand([b"", b""]), "invalid_tensor"),
        (by_hand([RAW], typed=True), "invalid_tensor"),
        (shared(), "invalid_tensor"),
        (service_pb2.ModelInferRequest(model_name="tiny"), "invalid_tensor"),
    ],
)
def test_tensors_that_contradict_themselves_are_refused(
    server: LiveServer, request_: Any, error: str | None
) -> None:
    with stub(server.grpc_address) as typed:
        if error is None:
            assert typed.ModelInfer(request_).raw_output_contents
            return
        code, found = failure(typed.ModelInfer, request_)
    assert (code, found["x-offramp-error"]) == (grpc.StatusCode.INVALID_ARGUMENT, error)


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ((9, 4), "too_many_inputs"),
        ((8, 20_000), "invalid_tensor"),
        ((8, 400), "text_too_long"),
    ],
)
def test_ids_that_no_model_takes_are_refused(
    server: LiveServer, shape: tuple[int, int], error: str, typed: bool
) -> None:
    number = math.prod(shape)
    request = service_pb2.ModelInferRequest(model_name="tiny")
    tensor = request.inputs.add(name="input_ids", datatype="INT64", shape=shape)
    if typed:
        tensor.contents.int64_contents.extend([1] * number)
    else:
        request.raw_input_contents.append(bytes(8 * number))
    with stub(server.grpc_address) as calls:
        code, found = failure(calls.ModelInfer, request)
    assert (code, found["x-offramp-error"]) == (grpc.StatusCode.INVALID_ARGUMENT, error)


def test_deadline_of_the_call_is_that_of_the_request(
    server: LiveServer, client: InferenceServerClient
) -> None:
    rows = [" ".join(WORDS[:60])] * 8
    generous = client.infer("tiny", [texts(rows)], client_timeout=60)
    check(generous, server.answer(rows))
    with stub(server.grpc_address) as typed:
        code, _ = failure(typed.ModelInfer, asked(rows), timeout=0.0001)
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED


def test_answers_and_failures_of_models_name_the_bundle(
    server: LiveServer, bundle_folder: Path
) -> None:
    version = sha256_of(bundle_folder / MANIFEST)[:12]
    with stub(server.grpc_address) as typed:
        _, call = typed.ModelInfer.with_call(asked(["w1"]))
        assert dict(call.trailing_metadata())["x-offramp-bundle"] == version
        _, trailing = failure(typed.ModelInfer, asked(["w1 " * 200]))
        assert trailing["x-offramp-bundle"] == version


def test_server_and_models_are_described(
    client: InferenceServerClient, bundle_folder: Path
) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert not client.is_model_ready("none")
    assert client.get_server_metadata().name == "offramp"
    metadata, config = client.get_model_metadata("tiny"), client.get_model_config("tiny").config
    assert {tensor.name for tensor in config.input} == {tensor.name for tensor in metadata.inputs}
    assert config.max_batch_size == 8
    assert config.parameters["bundle"].string_value == sha256_of(bundle_folder / MANIFEST)
    [statistics] = client.get_inference_statistics("tiny").model_stats
    assert statistics.name == "tiny"
    [entry] = client.get_model_repository_index().models
    assert (entry.name, entry.version, entry.state) == ("tiny", "1", "READY")
