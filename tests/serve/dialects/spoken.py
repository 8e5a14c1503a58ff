"""The dialects as tests speak them: paths, bodies, and the form of each one's errors."""

from typing import Any

import httpx

V1, HF, TEI, TOKENIZE, VLLM = "/v1/classify", "/", "/predict", "/tokenize", "/classify"
KSERVE, OIP = "/v1/models/tiny:predict", "/v2/models/tiny/infer"
CONTENTS, BASIC = "/api/v1/text/contents", "/beta/litellm_basic_guardrail_api"
PARAMETERS = "additional_provider_specific_params"
LABEL = "negative"
FLAG = {"flag": {LABEL: 0.5}}
LONG = "w1 " * 200

# A body that each path answers.
BODIES: dict[str, Any] = {
    V1: {"inputs": "w1"},
    HF: {"inputs": "w1"},
    "/models/tiny": {"inputs": "w1"},
    TEI: {"inputs": "w1"},
    "/invocations": {"inputs": "w1"},
    "/models/tiny/predict": {"inputs": "w1"},
    VLLM: {"input": "w1"},
    KSERVE: {"instances": ["w1"]},
    OIP: {"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["w1"]}]},
    "/v2/models/tiny/versions/1/infer": {
        "inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["w1"]}]
    },
    CONTENTS: {"contents": ["w1"], "detector_params": FLAG},
    BASIC: {"texts": ["w1"], "input_type": "request", PARAMETERS: FLAG},
}


def message_of(path: str, answer: httpx.Response) -> str:
    """Return the message of an error, which must be in the form of the path's dialect."""
    body, status = answer.json(), answer.status_code
    if path in (V1, VLLM):
        error = body.pop("error")
        assert body == {}
        if path == V1:
            assert set(error) == {"code", "message"}
        else:
            assert set(error) == {"message", "type", "param", "code"}
            assert error["code"] == status
        return str(error["message"])
    if path in (CONTENTS, BASIC):
        assert set(body) == {"code", "message"}
        assert body["code"] == status
        return str(body["message"])
    of_tei = path.endswith(("/predict", "/tokenize", "/invocations"))
    assert set(body) == ({"error", "error_type"} if of_tei else {"error"})
    return str(body["error"])
