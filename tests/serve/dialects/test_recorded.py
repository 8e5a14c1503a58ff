"""Requests that clients of other servers were seen to send, sent again without the clients.

`make clients` holds what the clients send against the same files.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.support.live_server import LiveServer, serving_bundles

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))


@pytest.fixture(scope="module")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    with serving_bundles(bundle_folder) as live:
        policy = live.http.get("/v1/models/tiny/policy").json()["policy"]
        policy["profiles"]["guard"] = {"exit": {"rule": "never"}, "flag": {"negative": 0.5}}
        policy["default"] = "guard"
        # LiteLLM's recorded requests bring flags of their own.
        policy["limits"] |= {"flag": "any", "windows": "any"}
        assert live.put_policy(policy).is_success
        yield live


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_recorded_requests_get_what_the_client_reads(server: LiveServer, file: Path) -> None:
    recorded = json.loads(file.read_text())
    assert len(recorded) > 3
    for sent in recorded:
        answer = server.http.request(
            sent["method"], sent["path"], headers=sent["headers"], json=sent["body"]
        )
        assert answer.status_code == sent["status"], answer.text
        if sent["status"] == 200:
            check = CHECKS.get(sent["path"], check_ready)
            check(server, sent["body"], answer.json())


def check_ready(server: LiveServer, body: Any, answer: Any) -> None:
    assert answer.get("ready", answer.get("live")) is True


def check_predictions(server: LiveServer, body: Any, answer: Any) -> None:
    own = server.answer(body["instances"], **body.get("parameters", {}))["results"]
    assert answer["predictions"] == [result["scores"] for result in own]


def check_classes(server: LiveServer, body: Any, answer: Any) -> None:
    own = server.answer(body["input"])["results"]
    assert [(each["label"], max(each["probs"])) for each in answer["data"]] == [
        (result["label"], result["score"]) for result in own
    ]


def check_tensors(server: LiveServer, body: Any, answer: Any) -> None:
    columns = {each["name"]: each["data"] for each in body["inputs"]}
    inputs = columns["TEXT"]
    if pairs := columns.get("TEXT_PAIR"):
        inputs = [{"text": a, "text_pair": b} for a, b in zip(inputs, pairs, strict=True)]
    labels = server.http.get("/v1/models/tiny").json()["labels"]
    own = [[r["scores"][label] for label in labels] for r in server.answer(inputs)["results"]]
    (found,) = [each for each in answer["outputs"] if each["name"] == "probabilities"]
    assert np.reshape(found["data"], found["shape"]) == pytest.approx(np.array(own), abs=1e-6)


def check_detections(server: LiveServer, body: Any, answer: Any) -> None:
    threshold = body["detector_params"]["threshold"]
    own = server.answer(body["contents"], flag={"negative": threshold})["results"]
    assert [[d["detection_type"] for d in found] for found in answer] == [r["flags"] for r in own]


def check_action(server: LiveServer, body: Any, answer: Any) -> None:
    own = server.answer(body["texts"], **body["additional_provider_specific_params"])["results"]
    flagged = any(result["flagged"] for result in own)
    assert answer["action"] == ("BLOCKED" if flagged else "NONE")


CHECKS: dict[str, Callable[[LiveServer, Any, Any], None]] = {
    "/v1/models/tiny:predict": check_predictions,
    "/classify": check_classes,
    "/v2/models/tiny/infer": check_tensors,
    "/api/v1/text/contents": check_detections,
    "/beta/litellm_basic_guardrail_api": check_action,
}
