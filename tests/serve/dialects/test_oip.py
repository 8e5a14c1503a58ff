"""Triton's own HTTP client against a running server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException

from serve.api.shown import short
from tests.serve.support.live_server import LiveServer, serving_bundles
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
    array = np.array(values, np.object_).reshape(-1 if flat else (-1, 1))
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
    assert found.get_response()["model_name"] == "tiny"
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
    with pytest.raises(InferenceServerException):
        triton.infer("tiny", [texts(["w1"])], parameters={"exit": '{"rule": "layer", "layer": 9}'})
    server.http.get("/v1/models/tiny")
    assert [a - b for a, b in zip(counted(), before, strict=True)] == [3, 1, 1]
    assert len(triton.get_inference_statistics()["model_stats"]) == 4
