"""The dialects as tests speak them: paths, bodies, and the form of each one's errors."""

from collections.abc import Callable
from typing import Any

import httpx

V1, HF, TEI, TOKENIZE, VLLM = "/v1/classify", "/", "/predict", "/tokenize", "/classify"
KSERVE, OIP = "/v1/models/tiny:predict", "/v2/models/tiny/infer"
CONTENTS, BASIC = "/api/v1/text/contents", "/beta/litellm_basic_guardrail_api"
MODERATIONS = "/v1/moderations"
GUARDS = [CONTENTS, BASIC, MODERATIONS]
NAMES_MODEL = [V1, VLLM, *GUARDS]  # in the body; others name it in the path, or not at all
PARAMETERS = "additional_provider_specific_params"
LABEL = "negative"
FLAG = {"flag": {LABEL: 0.5}}
LONG = "w1 " * 200

Dial = dict[str, Any]


def _inputs(dial: Dial, text: str) -> Any:
    return {"inputs": text, **dial}


def _hugging_face(dial: Dial, text: str) -> Any:
    return {"inputs": text, "parameters": dial}


def _tensors(dial: Dial, text: str) -> Any:
    given = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": [text]}
    return {"inputs": [given], "parameters": dial}


# From what a request asks for and its text to its body. TEI has no fields for the dial.
SPEAK: dict[str, Callable[[Dial, str], Any]] = {
    V1: _inputs,
    HF: _hugging_face,
    "/models/tiny": _hugging_face,
    TEI: _inputs,
    "/invocations": _inputs,
    "/models/tiny/predict": _inputs,
    VLLM: lambda dial, text: {"input": text, **dial},
    KSERVE: lambda dial, text: {"instances": [text], "parameters": dial},
    OIP: _tensors,
    "/v2/models/tiny/versions/1/infer": _tensors,
    CONTENTS: lambda dial, text: {"contents": [text], "detector_params": dial},
    BASIC: lambda dial, text: {"texts": [text], "input_type": "request", PARAMETERS: dial},
    MODERATIONS: lambda dial, text: {"input": text, **dial},
}
# A body that each path answers.
BODIES: dict[str, Any] = {
    path: speak(FLAG if path in GUARDS else {}, "w1") for path, speak in SPEAK.items()
}


def message_of(path: str, answer: httpx.Response) -> str:
    """Return the message of an error, which must be in the form of the path's dialect."""
    body, status = answer.json(), answer.status_code
    if path in (V1, VLLM, MODERATIONS):
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


def layer_of(path: str, answer: httpx.Response) -> str:
    """Return the layers where the texts of an answer left, as its dialect says it."""
    if path == V1:
        return str(answer.json()["results"][0]["exit"]["layer"])
    if path.startswith("/v2"):
        outputs = {each["name"]: each["data"] for each in answer.json()["outputs"]}
        return str(outputs["exit_layer"][0])
    return answer.headers.get("x-offramp-exit-layer", "")


def naming(model: str, guard: Dial | None = None) -> list[tuple[str, Any]]:
    """Return a path and a body of each way to name a model; guardrails' have this dial."""
    found = []
    for path, speak in SPEAK.items():
        dial = {**(guard or {})} if path in GUARDS else {}
        if path in NAMES_MODEL:
            found.append((path, speak({**dial, "model": model}, "w1")))
        elif "tiny" in path:
            found.append((path.replace("tiny", model), speak(dial, "w1")))
    return found
