"""Triton's own HTTP client against a running server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from serve.access.keys import Key, new_key
from serve.api.json_encoding import short
from tests.serve.support.live_server import LiveServer, serving_bundles

TEXTS = ["w1", "w2 w3 w4", "w5 w6"]
NEVER = {"exit": '{"rule": "never"}'}
INFER = "/v2/models/tiny/infer"


@pytest.fixture(scope="module")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    with serving_bundles(bundle_folder) as live:
        yield live


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[InferenceServerClient]:
    client = InferenceServerClient(f"127.0.0.1:{server.port}")
    yield client
    client.close()


def texts(values: list[str], name: str = "TEXT", binary: bool = True) -> InferInput:
    given = np.array([[value] for value in values], dtype=object)
    tensor = InferInput(name, list(given.shape), "BYTES")
    tensor.set_data_from_numpy(given, binary_data=binary)
    return tensor


def refusal(call: Any, *arguments: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        call(*arguments, **options)
    return caught.value.status(), caught.value.message()


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_scores_and_exits_are_those_of_our_own_route(
    server: LiveServer, client: InferenceServerClient, binary: bool, compression: str | None
) -> None:
    wanted = [
        InferRequestedOutput(name, binary_data=binary)
        for name in ("probabilities", "label", "exit_layer")
    ]
    rule = {"rule": "entropy", "threshold": 1.05}
    found = client.infer(
        "tiny",
        [texts(TEXTS, binary=binary)],
        outputs=wanted,
        parameters={"exit": json.dumps(rule)},
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
        request_id="seven",
    )
    labels = server.http.get("/v1/models/tiny").json()["labels"]
    own = server.answer(TEXTS, exit=rule)["results"]
    scores = [[r["scores"][label] for label in labels] for r in own]
    assert found.get_response()["id"] == "seven"
    assert [[short(p) for p in row] for row in found.as_numpy("probabilities")] == scores
    answered = [row[0] for row in found.as_numpy("label")]
    assert [a.decode() if binary else a for a in answered] == [r["label"] for r in own]
    assert found.as_numpy("exit_layer")[:, 0].tolist() == [r["exit"]["layer"] for r in own]


def test_pairs_ids_and_best_labels_can_be_asked_for(
    server: LiveServer, client: InferenceServerClient
) -> None:
    best = InferRequestedOutput("probabilities", class_count=2)
    pair = client.infer(
        "tiny", [texts(["w1"]), texts(["w2"], "TEXT_PAIR")], outputs=[best], parameters=NEVER
    )
    own = server.answer({"text": "w1", "text_pair": "w2"}, exit={"rule": "never"})["results"][0]
    first = pair.as_numpy("probabilities")[0][0].decode().split(":")
    assert (float(first[0]), first[2]) == (pytest.approx(own["score"]), own["label"])
    tensor = InferInput("input_ids", [1, 4], "INT64")
    tensor.set_data_from_numpy(np.array([[2, 5, 6, 3]], np.int64))
    by_ids = client.infer("tiny", [tensor], parameters=NEVER).as_numpy("label")[0][0].decode()
    assert (
        by_ids
        == server.answer({"input_ids": [2, 5, 6, 3]}, exit={"rule": "never"})["results"][0]["label"]
    )


def test_a_bare_text_is_a_request(server: LiveServer) -> None:
    headers = {"Inference-Header-Content-Length": "0"}
    response = server.http.post(INFER, content=b"w1 w2", headers=headers)
    assert response.status_code == 200
    assert int(response.headers["inference-header-content-length"]) > 0


def test_server_describes_itself_as_the_client_expects(client: InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert not client.is_model_ready("none")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert {"TEXT"} <= {each["name"] for each in client.get_model_metadata("tiny")["inputs"]}
    assert client.get_model_config("tiny")["max_batch_size"] > 0
    assert client.get_model_repository_index()[0]["name"] == "tiny"
    client.infer("tiny", [texts(["w1"])])
    assert client.get_inference_statistics("tiny")["model_stats"][0]["inference_count"] >= 1


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b"{}", {"Inference-Header-Content-Length": "99"}, 400),
        (b"{}", {"Inference-Header-Content-Length": "-1"}, 400),
        (b"{}", {"Inference-Header-Content-Length": "x"}, 400),
        (b'{"inputs": []}', {}, 422),
        (b'{"inputs": [{"name": "X", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}', {}, 422),
        (
            b'{"inputs": [{"name": "TEXT", "shape": [2], "datatype": "BYTES", "data": ["a"]}]}',
            {},
            422,
        ),
        (b"\x1f\x8b nothing", {"Content-Encoding": "gzip"}, 400),
        (b"{}", {"Content-Encoding": "br"}, 415),
    ],
)
def test_body_that_cannot_be_read_is_refused_in_a_sentence(
    server: LiveServer, body: bytes, headers: dict[str, str], status: int
) -> None:
    response = server.http.post(INFER, content=body, headers=headers)
    assert set(response.json()) == {"error"}
    assert response.json()["error"]
    assert response.status_code in {400, status}


_SIZES = st.integers(-1, 40) | st.sampled_from([2**31, 2**63, 10**30])


@st.composite
def framed(draw: st.DrawFn) -> tuple[bytes, str]:
    """Return a head and bytes behind it, either of which may lie about the other."""
    tensor = {
        "name": draw(st.sampled_from(["TEXT", "TEXT_PAIR", "input_ids", "", "x"])),
        "shape": draw(st.lists(_SIZES, max_size=3)),
        "datatype": draw(st.sampled_from(["BYTES", "INT64", "FP32", "BOOL", "none"])),
        "parameters": {"binary_data_size": draw(_SIZES)},
    }
    head = json.dumps({"inputs": [tensor] * draw(st.integers(0, 3))}).encode()
    size = draw(st.just(len(head)) | st.integers(-2, 2 * len(head)))
    return head + draw(st.binary(max_size=40)), str(size)


@given(framed())
def test_no_bytes_make_the_reader_of_tensors_fail(
    server: LiveServer, message: tuple[bytes, str]
) -> None:
    body, size = message
    headers = {"Inference-Header-Content-Length": size}
    response = server.http.post(INFER, content=body, headers=headers)
    assert response.status_code in {200, 400, 415, 422}, response.text
    if response.status_code != 200:
        assert response.json()["error"]


def test_what_cannot_be_had_reaches_the_client_as_its_own_exception(
    client: InferenceServerClient,
) -> None:
    assert refusal(client.infer, "none", [texts(["w1"])])[0] == "404"
    unknown = refusal(client.infer, "tiny", [texts(["w1"])], parameters={"speed": 3})
    assert "speed" in unknown[1]
    output = InferRequestedOutput("embedding")
    assert "embedding" in refusal(client.infer, "tiny", [texts(["w1"])], outputs=[output])[1]
    assert refusal(client.load_model, "tiny")[1]
    assert refusal(client.infer, "tiny", [texts(["w1"] * 300)])[0] in {"400", "422"}


def test_without_a_key_only_the_probes_answer(bundle_folder: Path, tmp_path: Path) -> None:
    key = Key.model_validate({"name": "web", "sha256": "0" * 64, "scopes": ["classify"]})
    secret = new_key(key, tmp_path / "keys.json")
    with serving_bundles(bundle_folder, keys=tmp_path / "keys.json") as guarded:
        asked = InferenceServerClient(f"127.0.0.1:{guarded.port}")
        assert asked.is_server_ready()
        assert refusal(asked.infer, "tiny", [texts(["w1"])])[0] == "401"
        assert refusal(asked.get_model_metadata, "tiny")[0] == "401"
        found = asked.infer("tiny", [texts(["w1"])], headers={"X-API-Key": secret})
        assert found.as_numpy("label").shape == (1, 1)
        asked.close()
