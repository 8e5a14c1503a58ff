"""Triton's own HTTP client against a running server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException

from serve.access.keys import Scope
from serve.api.json_encoding import short
from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.openapi_fuzz import make_key
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.tiny import tiny_tokenizer

TEXTS = ["w1 w2 w3", "w4", "w5 w6"]
LAYER_2 = {"rule": "layer", "layer": 2}
LABEL_OUTPUTS = ["probabilities", "logits", "label", "exit_layer", "exit_reason", "confidence"]


@pytest.fixture(scope="module")
def server(bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("tasks")
    kinds = [Kind("multi_label"), Kind("regression"), Kind("token")]
    tasks = [write_task_bundle(folder, kind) for kind in kinds]
    with serving_bundles(bundle_folder, *tasks) as live:
        yield live


@pytest.fixture(scope="module")
def triton(server: LiveServer) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        yield client


def texts(values: list[str], name: str = "TEXT", binary: bool = True, flat: bool = False) -> Any:
    array = (
        np.array(values, np.object_).reshape(-1)
        if flat
        else np.array([[v] for v in values], np.object_)
    )
    return tensor(name, array, "BYTES", binary)


def tensor(name: str, array: Any, datatype: str = "INT64", binary: bool = True) -> InferInput:
    made = InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def outputs(names: list[str], binary: bool = True) -> list[InferRequestedOutput]:
    return [InferRequestedOutput(name, binary_data=binary) for name in names]


def own(server: LiveServer, inputs: Any, model: str = "tiny", **fields: Any) -> list[Any]:
    fields["return"] = ["logits"]
    results: list[Any] = server.answer(inputs, model=model, **fields)["results"]
    return results


def check_labels(found: InferResult, expected: list[Any]) -> None:
    """Hold every number against /v1/classify's: it writes float32 in seven digits."""
    names = ("negative", "neutral", "positive")
    shown = [[short(p) for p in row] for row in found.as_numpy("probabilities")]
    assert shown == [[result["scores"][name] for name in names] for result in expected]
    assert [short(c) for c in found.as_numpy("confidence").ravel()] == [
        result["score"] for result in expected
    ]
    assert found.as_numpy("logits").astype(np.float64).round(6).tolist() == [
        result["logits"] for result in expected
    ]
    as_texts = [
        getattr(each, "decode", lambda each=each: each)()
        for each in found.as_numpy("label").ravel()
    ]
    assert as_texts == [result["label"] for result in expected]
    assert found.as_numpy("exit_layer").ravel().tolist() == [
        result["exit"]["layer"] for result in expected
    ]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("values", [TEXTS[:1], TEXTS])
def test_texts_are_classified_as_by_our_own_route(
    server: LiveServer,
    triton: InferenceServerClient,
    values: list[str],
    binary_in: bool,
    binary_out: bool,
) -> None:
    expected = own(server, values, exit=LAYER_2)
    for flat in (False, True):
        found = triton.infer(
            "tiny",
            [texts(values, binary=binary_in, flat=flat)],
            outputs=outputs(LABEL_OUTPUTS, binary_out),
            request_id="mine",
            parameters={"exit": json.dumps(LAYER_2)},
        )
        check_labels(found, expected)
        assert found.get_response()["id"] == "mine"
        assert found.get_response()["parameters"] == {"policy_version": 1, "score_scale": "raw"}


def test_outputs_that_are_not_named_are_the_usual_ones_in_binary(
    server: LiveServer, triton: InferenceServerClient
) -> None:
    (expected,) = own(server, "w1")
    found = triton.infer("tiny", [texts(["w1"], binary=False)], model_version="1")
    described = found.get_response()["outputs"]
    assert [o["name"] for o in described] == ["probabilities", "label", "exit_layer", "exit_reason"]
    assert all("binary_data_size" in output["parameters"] for output in described)
    assert found.as_numpy("label").tolist() == [[expected["label"].encode()]]
    assert found.as_numpy("exit_reason").tolist() == [[expected["exit"]["reason"].encode()]]


def test_pairs_and_ids_are_inputs_too(server: LiveServer, triton: InferenceServerClient) -> None:
    pair = {"text": "w1 w2", "text_pair": "w3"}
    encoding = tiny_tokenizer().encode("w1 w2", "w3")
    by_text = triton.infer(
        "tiny", [texts(["w1 w2"]), texts(["w3"], "TEXT_PAIR")], outputs=outputs(LABEL_OUTPUTS)
    )
    check_labels(by_text, own(server, [pair]))
    short_one = tiny_tokenizer().encode("w1")
    padded, columns = 12, []
    for name in ("ids", "attention_mask", "type_ids"):
        rows = [getattr(each, name) for each in (encoding, short_one)]
        columns.append(np.array([row + [0] * (padded - len(row)) for row in rows], np.int64))
    names = ("input_ids", "attention_mask", "token_type_ids")
    for binary in (True, False):
        given = [tensor(n, c, binary=binary) for n, c in zip(names, columns, strict=True)]
        found = triton.infer("tiny", given, outputs=outputs(LABEL_OUTPUTS))
        check_labels(found, own(server, [pair, "w1"]))


def test_classes_come_as_score_index_and_label(
    server: LiveServer, triton: InferenceServerClient
) -> None:
    expected = own(server, TEXTS)
    for count in (2, 9):
        wanted = InferRequestedOutput("probabilities", class_count=count)
        found = triton.infer("tiny", [texts(TEXTS)], outputs=[wanted]).as_numpy("probabilities")
        assert found.shape == (3, min(count, 3))
        for row, result in zip(found, expected, strict=True):
            for text, (label, score) in zip(row, result["scores"].items(), strict=False):
                given, index, name = text.decode().split(":")
                assert (float(given), name) == (score, label)
                assert ("negative", "neutral", "positive")[int(index)] == label


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_bodies_may_be_compressed_both_ways(
    server: LiveServer, triton: InferenceServerClient, algorithm: str
) -> None:
    many = TEXTS * 20
    found = triton.infer(
        "tiny",
        [texts(many)],
        outputs=outputs(LABEL_OUTPUTS),
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    check_labels(found, own(server, many))
    assert found._result["model_name"] == "tiny"
    body = {"inputs": [{"name": "TEXT", "shape": [60], "datatype": "BYTES", "data": many}]}
    plain = server.http.post("/v2/models/tiny/infer", json=body, headers={"Accept-Encoding": "x"})
    packed = server.http.post(
        "/v2/models/tiny/infer", json=body, headers={"Accept-Encoding": algorithm}
    )
    assert packed.headers["content-encoding"] == algorithm
    assert "content-encoding" not in plain.headers
    assert plain.content == packed.content


def test_other_tasks_have_outputs_of_their_own(
    server: LiveServer, triton: InferenceServerClient
) -> None:
    (value,) = own(server, "w1 w2", "regression")
    found = triton.infer("regression", [texts(["w1 w2"])])
    assert short(found.as_numpy("value")[0, 0]) == value["value"]
    (several,) = own(server, "w1 w2", "multi_label")
    found = triton.infer("multi_label", [texts(["w1 w2"])])
    assert {short(p) for p in found.as_numpy("probabilities")[0]} == {*several["scores"].values()}
    tokens = own(server, ["w1 w2", "w1"], "token")
    found = triton.infer("token", [texts(["w1 w2", "w1"])])
    logits, lengths = found.as_numpy("logits"), found.as_numpy("num_tokens").ravel()
    assert logits.shape == (2, max(lengths), 5)
    for row, length, result in zip(logits, lengths, tokens, strict=True):
        assert row[:length].astype(np.float64).round(6).tolist() == result["logits"]
        assert not row[length:].any()


def test_raw_body_is_one_text(server: LiveServer, triton: InferenceServerClient) -> None:
    response = server.http.post(
        "/v2/models/tiny/infer",
        content=b"w1 w2",
        headers={
            "Inference-Header-Content-Length": "0",
            "Content-Type": "application/x-www-form-urlencoded",  # curl's
        },
    )
    length = int(response.headers["inference-header-content-length"])
    found = InferResult.from_response_body(response.content, header_length=length)
    assert found.as_numpy("label").tolist() == [[own(server, "w1 w2")[0]["label"].encode()]]
    assert response.headers["x-offramp-exit-layer"] == "4"


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ({"parameters": {"exit": "fast"}}, {"exit": "fast"}),
        ({"headers": {"X-Offramp-Exit": "fast"}}, {"exit": "fast"}),
        ({"timeout": 500_000_000, "priority": 1}, {"timeout_ms": 500_000, "priority": "high"}),
        ({"parameters": {"timeout_ms": 9000}, "priority": 3}, {"priority": "low"}),
        ({"priority": 0}, {}),
        ({"parameters": {"truncate": True}}, {"truncate": True}),
    ],
)
def test_dial_is_in_parameters_or_headers(
    server: LiveServer, triton: InferenceServerClient, asked: Any, fields: Any
) -> None:
    long = " ".join(["w1"] * (500 if "truncate" in fields else 3))
    found = triton.infer("tiny", [texts([long])], outputs=outputs(LABEL_OUTPUTS), **asked)
    check_labels(found, own(server, [long], **fields))


def test_answer_to_a_target_tells_its_rule_and_certificate(
    server: LiveServer, triton: InferenceServerClient
) -> None:
    target = {"target": {"max_disagreement": 0}}
    expected = server.answer("w1", model="tiny", exit=target)
    found = triton.infer("tiny", [texts(["w1"])], parameters={"exit": json.dumps(target)})
    shown = found.get_response()["parameters"]
    for name in ("exit_rule", "certificate"):
        assert json.loads(shown[name]) == expected[name]
    assert shown["policy_version"] == expected["policy_version"]


def test_server_describes_itself_and_counts(
    server: LiveServer, triton: InferenceServerClient
) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("tiny")
    assert triton.is_model_ready("tiny", "1")
    assert not triton.is_model_ready("tiny", "2")
    assert "binary_tensor_data" in triton.get_server_metadata()["extensions"]
    metadata, config = triton.get_model_metadata("tiny"), triton.get_model_config("tiny", "1")
    assert metadata["inputs"][0] == {"name": "TEXT", "datatype": "BYTES", "shape": [-1, 1]}
    for kind in ("input", "output"):
        assert [each["name"] for each in metadata[f"{kind}s"]] == [
            each["name"] for each in config[kind]
        ]
        for declared, configured in zip(metadata[f"{kind}s"], config[kind], strict=True):
            assert declared["shape"][1:] == configured["dims"]
    index = triton.get_model_repository_index()
    assert [(each["name"], each["state"]) for each in index] == [
        (name, "READY") for name in ("tiny", "multi_label", "regression", "token")
    ]

    def counted() -> tuple[int, int, int]:
        (stats,) = triton.get_inference_statistics("tiny")["model_stats"]
        kinds = stats["inference_stats"]
        return stats["inference_count"], kinds["success"]["count"], kinds["fail"]["count"]

    before = counted()
    triton.infer("tiny", [texts(TEXTS)])
    refusal(triton, [texts(["w1"])], parameters={"exit": json.dumps({"rule": "layer", "layer": 9})})
    server.http.get("/v1/models/tiny")
    assert [a - b for a, b in zip(counted(), before, strict=True)] == [3, 1, 1]
    assert len(triton.get_inference_statistics()["model_stats"]) == 4


def refusal(
    client: InferenceServerClient, given: list[InferInput], model: str = "tiny", **options: Any
) -> tuple[int, str]:
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, given, **options)
    return int(caught.value.status()), caught.value.message()


def test_what_is_wrong_is_said_to_the_client(triton: InferenceServerClient) -> None:
    one, ids = texts(["w1"]), np.array([[2, 5, 3]], np.int64)
    mask = np.array([[1, 0, 1]], np.int64)
    cases: list[tuple[list[InferInput], dict[str, Any], int, str]] = [
        ([texts(["w1"], "WORDS")], {}, 400, "inputs: there is no 'WORDS'; there are TEXT,"),
        ([tensor("TEXT", ids)], {}, 400, "TEXT: the datatype must be BYTES, not 'INT64'"),
        ([tensor("input_ids", ids.ravel())], {}, 400, "input_ids: the shape must be [rows, tok"),
        ([one, tensor("input_ids", ids)], {}, 400, "input_ids: does not go with TEXT"),
        ([texts(["w1"], "TEXT_PAIR")], {}, 400, "inputs: give TEXT or input_ids"),
        ([one, one], {}, 400, "inputs: an input is there twice"),
        ([one, texts(TEXTS, "TEXT_PAIR")], {}, 400, "TEXT_PAIR: has the shape [3, 1], and TEXT"),
        (
            [tensor("input_ids", ids), tensor("attention_mask", mask)],
            {},
            400,
            "attention_mask[0]: must be ones for tokens and then zeros",
        ),
        ([texts([""])], {}, 422, "inputs[0]: must not be empty"),
        ([tensor("input_ids", ids * 10**6)], {}, 422, "inputs[0].input_ids[0] is 2000000, but"),
        ([tensor("input_ids", -ids)], {}, 422, "inputs[0].input_ids[0]: must be greater"),
        ([texts(["w1 " * 500])], {}, 422, "inputs[0] has"),
        ([texts(["w1"] * 300)], {}, 422, "inputs: 300 texts, at most 256 per request"),
        ([one], {"outputs": outputs(["scores"])}, 400, "outputs: there is no 'scores'; there"),
        ([one], {"outputs": outputs(["label"] * 2)}, 400, "outputs: an output is there twice"),
        (
            [one],
            {"outputs": [InferRequestedOutput("label", class_count=1)]},
            400,
            "label: classification is for scores of whole texts",
        ),
        ([one], {"parameters": {"speed": 9}}, 400, "parameters: there is no 'speed'; there are"),
        ([one], {"sequence_id": 1}, 400, "parameters: there is no 'sequence_id'"),
        ([one], {"priority": 4}, 400, "parameters.priority: must be 1 (high), 2 (normal)"),
        ([one], {"timeout": -1}, 400, "parameters.timeout: must be a whole number"),
        ([one], {"timeout": 1, "parameters": {"timeout_ms": 1}}, 400, "parameters: send timeout,"),
        ([one], {"parameters": {"timeout_ms": 0}}, 422, "parameters.timeout (in microseconds)"),
        ([one], {"parameters": {"truncate": "yes"}}, 422, "parameters.truncate: must be"),
        ([one], {"parameters": {"exit": "{"}}, 422, "parameters.exit: must be the name of"),
        ([one], {"parameters": {"exit": "none"}}, 422, "exit: no profile 'none'"),
        ([one], {"query_params": {"exit": "fast"}}, 422, "exit: no query parameters here"),
        ([one], {"model_version": "2"}, 404, "tiny has no version '2', only '1'"),
        ([one], {"timeout": 1}, 504, "timeout_ms passed before every text"),
    ]
    for given, options, status, said in cases:
        found = refusal(triton, given, **options)
        assert (found[0], found[1][: len(said)]) == (status, said)
    assert refusal(triton, [one], "none")[1].startswith("no model 'none'; served are tiny")
    unknown = "parameters: there is no 'triton_x'"
    assert refusal(triton, [one], parameters={"triton_x": 1})[1].startswith(unknown)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("get_log_settings", []),
        ("update_trace_settings", ["tiny"]),
        ("get_system_shared_memory_status", []),
        ("unregister_cuda_shared_memory", []),
    ],
)
def test_what_this_server_lacks_is_a_501_with_a_sentence(
    triton: InferenceServerClient, call: str, arguments: list[str]
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        getattr(triton, call)(*arguments)
    assert caught.value.status() == "501"
    assert len(caught.value.message().split()) > 5


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/nothing", 404),
        ("GET", "/v2/models/none/stats", 404),
        ("GET", "/v2/models/tiny/infer", 405),
        ("DELETE", "/v2", 405),
        ("POST", "/v2/models/tiny/infer", 400),
        ("POST", "/v2/repository/index", 200),
    ],
)
def test_every_error_is_an_object_with_a_sentence(
    server: LiveServer, method: str, path: str, status: int
) -> None:
    response = server.http.request(method, path)
    assert response.status_code == status
    if status != 200:
        assert list(response.json()) == ["error"]
        assert isinstance(response.json()["error"], str)


@pytest.mark.parametrize("path", ["/v2/repository/index", "/v2/models/tiny/infer"])
@pytest.mark.parametrize("body", [b"\n", b" ", b"\t{"])
def test_a_body_of_blanks_is_no_json(server: LiveServer, path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    response = server.http.post(path, content=body, headers=headers)
    assert response.status_code == 400, response.text


def test_keys_scopes_and_overload_reach_the_client(
    start_server: StartServer, tmp_path: Path
) -> None:
    def header(scope: Scope, **limits: int) -> dict[str, str]:
        return {"Authorization": f"Bearer {make_key(tmp_path, scope, **limits)}"}

    user, viewer = header("classify", rows_per_s=1), header("read")
    server = start_server(keys=tmp_path / "keys.json")
    with InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        assert client.is_server_ready()
        assert refusal(client, [texts(["w1"])])[0] == 401
        assert refusal(client, [texts(["w1"])], headers=viewer)[0] == 403
        assert client.infer("tiny", [texts(["w1"])], headers=user).as_numpy("label").size
        assert client.get_model_metadata("tiny", headers=viewer)["name"] == "tiny"
        assert client.get_model_repository_index(headers=viewer)[0]["name"] == "tiny"
        client.infer("tiny", [texts(["w1"] * 9)], headers=user)  # all that ten seconds allow
        assert refusal(client, [texts(TEXTS)], headers=user)[0] == 429
    body = {"inputs": [{"name": "TEXT", "shape": [3], "datatype": "BYTES", "data": TEXTS}]}
    key = {"Authorization": user["Authorization"]}  # the client has added headers of its own
    response = server.http.post("/v2/models/tiny/infer", json=body, headers=key)
    assert (response.status_code, list(response.json())) == (429, ["error"])
    assert int(response.headers["retry-after"]) >= 1
