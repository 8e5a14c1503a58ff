"""OpenAI's client against vLLM's /classify and the list of models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.serve.api.conftest import StartServer
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import TIMEOUT_S, LiveServer
from tests.serve.support.task_bundles import LABELS
from tests.support.tiny import MAX_TOKENS, tiny_tokenizer

LABEL_IDS = ("negative", "neutral", "positive")


# Reading certificates takes a while, so all clients share one connection pool.
POOL = httpx2.Client(transport=httpx2.HTTPTransport(verify=False), timeout=TIMEOUT_S)


@pytest.fixture(scope="module", autouse=True)
def _pool_is_closed() -> Iterator[None]:
    with POOL:
        yield


class Client:
    """OpenAI's client, whose low-level `post` asks /classify."""

    def __init__(self, server: LiveServer, key: str = "none", **headers: str) -> None:
        self._address = f"http://127.0.0.1:{server.port}"
        self.openai = openai.OpenAI(
            base_url=f"{self._address}/v1",
            api_key=key,
            max_retries=0,
            default_headers=headers,
            http_client=POOL,
        )

    def classify(self, given: Any, **fields: Any) -> httpx2.Response:
        return self.openai.post(
            f"{self._address}/classify",
            cast_to=httpx2.Response,
            body={"input": given, **fields},
        )

    def data(self, given: Any, **fields: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.classify(given, **fields).json()["data"]
        return found


def check(error: openai.APIStatusError) -> None:
    assert isinstance(error.body, dict)
    assert set(error.body) == {"message", "type", "param", "code"}
    assert (error.body["type"], error.body["code"]) == (type(error).__name__, error.status_code)


def expected(result: dict[str, Any]) -> tuple[str, list[float]]:
    return result["label"], [result["scores"][label] for label in LABEL_IDS]


def test_client_lists_models(server: LiveServer) -> None:
    (model,) = Client(server).openai.models.list().data
    assert (model.id, model.object, model.owned_by) == ("tiny", "model", "offramp")
    assert model.created > 1_500_000_000
    assert Client(server).openai.models.retrieve("tiny").to_dict()["name"] == "tiny"


def test_answers_are_those_of_our_own_route(server: LiveServer) -> None:
    ids = tiny_tokenizer().encode("w3 w4").ids
    pair = {"text": "w1", "text_pair": "w2"}
    ask = Client(server).classify
    own = server.answer(["w1", "w2", {"input_ids": ids}, pair])["results"]
    for given, results in (
        ("w1", own[:1]),
        (["w1", "w2"], own[:2]),
        (ids, own[2:3]),
        ([ids, ids], [own[2], own[2]]),
        (["w1", ids], own[:3:2]),
        (pair, own[3:]),
        ([pair], own[3:]),
    ):
        answer = ask(given, model="tiny").json()
        assert (answer["object"], answer["model"]) == ("list", "tiny")
        found = answer["data"]
        assert [(e["label"], e["probs"]) for e in found] == [expected(r) for r in results]
        assert [(e["index"], e["num_classes"]) for e in found] == [
            (index, 3) for index in range(len(results))
        ]
        assert [e["exit"] for e in found] == [r["exit"] for r in results]
    usage = ask(["w1", ids]).json()["usage"]
    assert usage == {"prompt_tokens": 7, "total_tokens": 7, "completion_tokens": 0}


def test_options_of_the_request_are_heeded(server: LiveServer) -> None:
    rule = {"rule": "layer", "layer": 2}
    (own,) = server.answer("w1", exit=rule, **{"return": ["logits"]})["results"]
    for fields in ({"use_activation": False}, {"activation": False}):
        (found,) = Client(server).data("w1", exit=rule, **fields)
        assert found["probs"] == pytest.approx(own["logits"], abs=1e-6)
        assert found["label"] == own["label"]
    answer = Client(server).classify("w1", request_id="mine", user="me", priority=-1).json()
    assert answer["id"] == "classify-mine"
    long = "w1 " * 2 * MAX_TOKENS
    (own,) = server.answer(long, truncate=True)["results"]
    for length in (-1, MAX_TOKENS, 10**9):
        (found,) = Client(server).data(long, truncate_prompt_tokens=length)
        assert (found["label"], found["probs"]) == expected(own)


def test_client_raises_its_own_errors(start_server: StartServer, tmp_path: Path) -> None:
    secret = make_key(tmp_path, "classify", rows_per_s=1)
    server = start_server(keys=tmp_path / "keys.json")
    with pytest.raises(openai.AuthenticationError) as unknown:
        Client(server).classify("w1")
    check(unknown.value)
    known = Client(server, secret)
    with pytest.raises(openai.NotFoundError) as missing:
        known.classify("w1", model="none")
    check(missing.value)
    with pytest.raises(openai.PermissionDeniedError) as forbidden:
        known.classify("w1", priority=-1)
    check(forbidden.value)
    with pytest.raises(openai.RateLimitError) as limited:
        for _ in range(100):
            known.classify("w1")
    assert int(limited.value.response.headers["retry-after"]) >= 1
    check(limited.value)
    with pytest.raises(openai.PermissionDeniedError):  # the list needs scope `read`
        known.openai.models.list()


def test_other_tasks_are_answered(servers: LiveServer) -> None:
    client = Client(servers)
    (found,) = client.data("w1", model="multi_label")
    (own,) = servers.answer("w1", model="multi_label")["results"]
    assert found["probs"] == [own["scores"][label] for label in LABELS["multi_label"]]
    assert found["label"] == own["label"]
    (found,) = client.data("w1", model="regression")
    (own,) = servers.answer("w1", model="regression")["results"]
    assert (found["probs"], found["num_classes"]) == ([own["value"]], 1)
