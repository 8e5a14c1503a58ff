"""What no dialect can answer: the status, the form and the field of each refusal."""

from pathlib import Path
from typing import Any

import pytest

from tests.serve.api.conftest import StartServer
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer
from tests.serve.support.spoken import (
    BASIC,
    BODIES,
    CONTENTS,
    FLAG,
    HF,
    KSERVE,
    LABEL,
    LONG,
    OIP,
    PARAMETERS,
    TEI,
    TOKENIZE,
    V1,
    VLLM,
    message_of,
)

NO_LAYER = {"rule": "layer", "layer": 9}


def text(data: list[Any], name: str = "TEXT", **fields: Any) -> dict[str, Any]:
    given = {"name": name, "shape": [len(data)], "datatype": "BYTES", "data": data}
    return {**given, **fields}


def ids(rows: list[list[int]], name: str = "input_ids", **fields: Any) -> dict[str, Any]:
    shape = [len(rows), len(rows[0])]
    return {"name": name, "shape": shape, "datatype": "INT64", "data": rows, **fields}


def tensors(*inputs: Any, **fields: Any) -> dict[str, Any]:
    return {"inputs": list(inputs), **fields}


def asking(**parameters: Any) -> dict[str, Any]:
    return tensors(text(["w1"]), parameters=parameters)


def wanting(*names: str, **parameters: Any) -> dict[str, Any]:
    outputs = [{"name": name, "parameters": parameters} for name in names]
    return tensors(text(["w1"]), outputs=outputs)


def guarded(**parameters: Any) -> dict[str, Any]:
    return {"contents": ["w1"], "detector_params": {**FLAG, **parameters}}


# Path, body, status, and how the message begins: with the field, in the words of the dialect.
REFUSALS: list[tuple[str, Any, int, str]] = [
    (V1, {"inputs": [LONG]}, 422, "inputs[0] has"),
    (V1, {"inputs": "1" * 20_000, "top_k": 10**19}, 422, "inputs"),
    (V1, {"inputs": "1" * 20_000, "top_k": 10**20}, 400, "the body has a number"),
    (HF, {"inputs": ""}, 422, "inputs:"),
    (HF, {"inputs": [LONG]}, 422, "inputs[0] has"),
    (HF, {"inputs": "w1", "parameters": {"top_k": 0}}, 422, "parameters.top_k:"),
    (HF, {"inputs": "w1", "parameters": {"exit": NO_LAYER}}, 422, "layer 9 has no exit"),
    (HF, {"inputs": "w1", "parameters": {"aggregation_strategy": "simple"}}, 422, "aggregation:"),
    ("/models/none", {"inputs": "w1"}, 404, "no model 'none'"),
    (TEI, {"inputs": ["w1", "w2", "w3"]}, 422, "inputs:"),
    (TEI, {"inputs": [["w1"], "w2"]}, 422, "inputs:"),
    (TEI, {"inputs": []}, 422, "inputs:"),
    (TEI, {"inputs": {"text": "w1"}}, 422, "inputs:"),
    (TEI, {"inputs": [["w1", ""]]}, 422, "inputs[0].text_pair:"),
    (TEI, {"inputs": [["w1"]] * 257}, 422, "inputs: 257 texts"),
    (TEI, {"inputs": LONG}, 422, "inputs[0] has"),
    (TEI, {"inputs": "w1", "top_k": 1}, 422, "top_k:"),
    (
        TEI,
        {"inputs": "w1", "truncate": True, "truncation_direction": "Left"},
        422,
        "truncation_direction:",
    ),
    ("/models/none/predict", {"inputs": "w1"}, 404, "no model 'none'"),
    (TOKENIZE, {"inputs": "w1", "prompt_name": "query"}, 422, "prompt_name:"),
    (TOKENIZE, {"inputs": ["w1 " * 30_000]}, 422, "inputs: 90000 characters"),
    (TOKENIZE, {"inputs": ["w1"] * 257}, 422, "inputs: 257 texts"),
    (TOKENIZE, {"inputs": []}, 422, "inputs:"),
    (TOKENIZE, {"inputs": ["w1", 1]}, 422, "inputs[1]:"),
    (VLLM, {"input": ""}, 400, "input:"),
    (VLLM, {"input": ["w1", ""]}, 400, "input[1]:"),
    (VLLM, {"input": []}, 400, "input:"),
    (VLLM, {"input": [1, "w1"]}, 400, "input.input_ids[1]:"),
    (VLLM, {"input": [[1], [99_999]]}, 400, "input[1].input_ids[0] is"),
    (VLLM, {"input": 3}, 400, "input:"),
    (VLLM, {"input": ["w1"] * 257}, 400, "input: 257 texts"),
    (VLLM, {"input": LONG}, 400, "input[0] has"),
    (VLLM, {"input": "w1", "truncate_prompt_tokens": 10}, 400, "truncate_prompt_tokens:"),
    (
        VLLM,
        {"input": "w1", "truncate_prompt_tokens": -1, "truncation_side": "left"},
        400,
        "truncation_side:",
    ),
    (VLLM, {"input": "w1", "add_special_tokens": False}, 400, "add_special_tokens:"),
    (VLLM, {"input": "w1", "padding": "max_length"}, 400, "padding:"),
    (VLLM, {"input": "w1", "activation": True, "use_activation": True}, 400, "activation:"),
    (VLLM, {"input": "w1", "messages": []}, 400, "messages:"),
    (VLLM, {"input": "w1", "exit": NO_LAYER}, 400, "layer 9 has no exit"),
    (VLLM, {"input": "w1", "timeout_ms": 0}, 400, "timeout_ms:"),
    (VLLM, {"input": "w1", "model": "none"}, 404, "no model 'none'"),
    (KSERVE, {"instances": []}, 422, "instances:"),
    (KSERVE, {"instances": ["w1", ""]}, 422, "instances[1]:"),
    (KSERVE, {"instances": [["w1"]]}, 422, "instances[0]:"),
    (KSERVE, {"instances": "w1"}, 422, "instances:"),
    (KSERVE, {"instances": ["w1"] * 257}, 422, "instances: 257 texts"),
    (KSERVE, {"instances": [LONG]}, 422, "instances[0] has"),
    (KSERVE, {"instances": ["w1"], "parameters": {"top_p": 1}}, 422, "parameters.top_p:"),
    (KSERVE, {"instances": ["w1"], "parameters": {"exit": {"rule": "x"}}}, 422, "parameters.exit:"),
    (KSERVE, {"instances": ["w1"], "parameters": {"timeout_ms": 0}}, 422, "parameters.timeout_ms:"),
    (KSERVE, {"instances": ["w1"], "parameters": {"priority": "x"}}, 422, "parameters.priority:"),
    ("/v1/models/none:predict", {"instances": ["w1"]}, 404, "no model 'none'"),
    (OIP, tensors(), 400, "inputs:"),
    (OIP, tensors(text(["w1"], "WORDS")), 400, "inputs: there is no 'WORDS'"),
    (OIP, tensors(text([1], datatype="INT64")), 400, "TEXT:"),
    (OIP, tensors(ids([[2, 5]], shape=[2])), 400, "input_ids:"),
    (OIP, tensors(text(["w1"]), ids([[2]])), 400, "input_ids: does not go with TEXT"),
    (OIP, tensors(text(["w1"], "TEXT_PAIR")), 400, "inputs:"),
    (OIP, tensors(text(["w1"]), text(["w1"])), 400, "inputs:"),
    (OIP, tensors(text(["w1"]), text(["w1", "w2"], "TEXT_PAIR")), 400, "TEXT_PAIR:"),
    (OIP, tensors(ids([[2, 5]]), ids([[0, 1]], "attention_mask")), 400, "attention_mask[0]:"),
    (OIP, tensors(text([""])), 422, "inputs[0]:"),
    (OIP, tensors(ids([[10**6]])), 422, "inputs[0].input_ids[0] is"),
    (OIP, tensors(ids([[-1]])), 422, "inputs[0].input_ids[0]:"),
    (OIP, tensors(ids([[1]], shape=[256, 2047])), 400, "input_ids: must have at most 131072"),
    (OIP, tensors(ids([[1]], shape=[300, 2])), 422, "inputs: 300 texts"),
    (OIP, tensors(text([LONG])), 422, "inputs[0] has"),
    (OIP, tensors(text(["w1"] * 257)), 422, "inputs: 257 texts"),
    (OIP, wanting("scores"), 400, "outputs: there is no 'scores'"),
    (OIP, wanting("label", "label"), 400, "outputs:"),
    (OIP, wanting("label", classification=1), 400, "label:"),
    (OIP, asking(speed=9), 400, "parameters: there is no 'speed'"),
    (OIP, asking(sequence_id=1), 400, "parameters: there is no 'sequence_id'"),
    (OIP, asking(priority=4), 400, "parameters.priority:"),
    (OIP, asking(timeout=-1), 400, "parameters.timeout:"),
    (OIP, asking(timeout=1, timeout_ms=1), 400, "parameters:"),
    (OIP, asking(timeout_ms=0), 422, "parameters.timeout (in microseconds)"),
    (OIP, asking(truncate="yes"), 422, "parameters.truncate:"),
    (OIP, asking(exit="{"), 422, "parameters.exit:"),
    (OIP, asking(exit="none"), 422, "exit: no profile 'none'"),
    (OIP, asking(timeout=1), 504, "timeout_ms"),
    (f"{OIP}?exit=fast", asking(), 422, "exit: no query parameters"),
    ("/v2/models/none/infer", asking(), 404, "no model 'none'"),
    ("/v2/models/tiny/versions/2/infer", asking(), 404, "tiny has no version '2'"),
    (CONTENTS, guarded(profile="none"), 422, "exit: no profile 'none'"),
    (CONTENTS, guarded(profile="fast", exit="fast"), 422, "detector_params.profile:"),
    (CONTENTS, guarded(flag={"x": 0.5}), 422, "flag: no label 'x'"),
    (CONTENTS, guarded(flag={LABEL: 2}), 422, f"detector_params.flag.{LABEL}:"),
    (CONTENTS, guarded(threshold=2), 422, "detector_params.threshold:"),
    (CONTENTS, guarded(nonsense=2), 422, "detector_params.nonsense:"),
    (CONTENTS, guarded(timeout_ms=0), 422, "detector_params.timeout_ms:"),
    (CONTENTS, guarded(model="none"), 404, "no model 'none'"),
    (CONTENTS, {**guarded(), "contents": ["", LONG]}, 422, "contents[1] has"),
    (CONTENTS, {**guarded(), "contents": ["w1"] * 257}, 422, "contents: 257 texts"),
    (BASIC, {**BODIES[BASIC], "texts": ["", LONG]}, 422, "texts[1] has"),
    (BASIC, {"input_type": "request"}, 422, "texts:"),
    (BASIC, {"texts": ["w1"], "input_type": "request", PARAMETERS: {}}, 422, "tiny has no flag"),
]
# How a text that is too long may be sent, in the words of each dialect.
SHORTEN = {
    V1: '"truncate": true',
    HF: '"parameters": {"truncation": true}',
    TEI: '"truncate": true',
    VLLM: '"truncate_prompt_tokens": -1',
    KSERVE: '"parameters": {"truncate": true}',
    OIP: '"parameters": {"truncate": true}',
    CONTENTS: '"windows": {"stride": 64, "combine": "any"}',
    BASIC: '"windows": {"stride": 64, "combine": "any"}',
}


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    REFUSALS,
    ids=[f"{case[0]}-{number}" for number, case in enumerate(REFUSALS)],
)
def test_what_cannot_be_answered_is_refused_in_the_form_of_the_dialect(
    server: LiveServer, path: str, body: Any, status: int, said: str
) -> None:
    answer = server.http.post(path, json=body)
    message = message_of(path, answer)
    assert (answer.status_code, message[: len(said)]) == (status, said)
    if said.endswith("] has"):
        assert SHORTEN[path] in message


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"X-Offramp-Exit": "{nothing"}, "x-offramp-exit:"),
        ({"X-Offramp-Exit": "no such"}, "exit:"),
        ({"X-Offramp-Exit": '{"rule": "never", "rule": "layer"}'}, "x-offramp-exit:"),
        ({"X-Offramp-Timeout-Ms": "soon"}, "x-offramp-timeout-ms:"),
        ({"X-Offramp-Timeout-Ms": "1_0"}, "x-offramp-timeout-ms:"),
        ({"X-Offramp-Timeout-Ms": "0"}, "timeout_ms:"),
        ({"X-Offramp-Timeout-Ms": "nan"}, "timeout_ms:"),
        ({"X-Offramp-Priority": "now"}, "priority:"),
        ([("X-Offramp-Exit", "fast"), ("X-Offramp-Exit", "exact")], "x-offramp-exit:"),
    ],
)
def test_a_dial_in_headers_that_cannot_be_read_is_refused(
    server: LiveServer, headers: Any, said: str
) -> None:
    answer = server.http.post(V1, json=BODIES[V1], headers=headers)
    assert answer.status_code == 422
    assert message_of(V1, answer).startswith(said)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "said"),
    [
        (HF, {"inputs": "w1", "parameters": {"exit": "fast"}}, "X-Offramp-Exit", 422, "exit:"),
        (CONTENTS, guarded(exit="fast"), "X-Offramp-Exit", 422, "exit:"),
        (CONTENTS, guarded(profile="exact"), "detector-id", 422, "detector_params.profile:"),
        (CONTENTS, guarded(), "detector-id: none", 404, "detector-id:"),
    ],
)
def test_a_header_does_not_contradict_the_body(
    server: LiveServer, path: str, body: Any, headers: str, status: int, said: str
) -> None:
    name, _, value = headers.partition(": ")
    answer = server.http.post(path, json=body, headers={name: value or "fast"})
    assert (answer.status_code, message_of(path, answer)[: len(said)]) == (status, said)


def test_keys_models_and_rates_are_told_in_the_form_of_the_dialect(
    start_server: StartServer, tmp_path: Path
) -> None:
    def key(name: str, scope: Any, **limits: int) -> dict[str, str]:
        return {"X-API-Key": make_key(tmp_path, scope, name=name, **limits)}

    viewer = key("viewer", "read")
    users = {path: key(f"user{i}", "classify", rows_per_s=1) for i, path in enumerate(BODIES)}
    reading = key("reading", "classify", tokens_per_s=1)
    server = start_server(keys=tmp_path / "keys.json")
    for path, body in BODIES.items():
        for headers, status in (({}, 401), (viewer, 403), (users[path], 200)):
            answer = server.http.post(path, json=body, headers=headers)
            assert answer.status_code == status, (path, answer.text)
            assert status == 200 or message_of(path, answer)
        for _ in range(20):
            answer = server.http.post(path, json=body, headers=users[path])
        assert answer.status_code == 429
        assert message_of(path, answer)
        assert int(answer.headers["retry-after"]) >= 1
    for probe in ("/health", "/ping", "/v2/health/ready"):
        assert server.http.get(probe).status_code == 200
    asks = [server.http.post(TOKENIZE, json={"inputs": "w1 w2"}, headers=reading) for _ in "ab"]
    assert [each.status_code for each in asks] == [200, 429]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/models/token/predict", {"inputs": "w1"}, 422),
        (TEI, {"inputs": "w1"}, 422),  # which of several models is not said
        (VLLM, {"input": "w1", "model": "token"}, 400),
        (VLLM, {"input": "w1"}, 400),
        ("/v1/models/token:predict", {"instances": ["w1"]}, 422),
    ],
)
def test_what_a_dialect_has_no_form_for_is_refused(
    servers: LiveServer, path: str, body: Any, status: int
) -> None:
    answer = servers.http.post(path, json=body)
    assert answer.status_code == status
    assert message_of(path, answer)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/nothing", 404),
        ("GET", "/v2/models/none/stats", 404),
        ("GET", "/v2/models/tiny/infer", 405),
        ("DELETE", "/v2", 405),
        ("POST", "/v2/models/tiny/infer", 400),
        ("GET", "/v2/logging", 501),
        ("POST", "/v2/models/tiny/trace/setting", 501),
        ("GET", "/v2/systemsharedmemory/status", 501),
        ("POST", "/v2/cudasharedmemory/unregister", 501),
    ],
)
def test_paths_of_triton_that_are_not_there_are_told_in_its_form(
    server: LiveServer, method: str, path: str, status: int
) -> None:
    answer = server.http.request(method, path)
    assert answer.status_code == status
    assert message_of(OIP, answer)


@pytest.mark.parametrize("path", ["/v2/repository/index", OIP])
@pytest.mark.parametrize("body", [b"\n", b" ", b"\t{"])
def test_a_body_of_blanks_is_no_json(server: LiveServer, path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    assert server.http.post(path, content=body, headers=headers).status_code == 400
