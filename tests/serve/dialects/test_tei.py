"""TEI's client against a running server, and what of TEI's contract it does not call."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tei_client import HttpClient
from tei_client.models import ClassificationResult

from tests.serve.support.live_server import LiveServer
from tests.support.tiny import MAX_TOKENS, tiny_tokenizer


@contextmanager
def client(server: LiveServer, path: str = "", **headers: str) -> Iterator[HttpClient]:
    address = f"http://127.0.0.1:{server.port}{path}"
    tei = HttpClient(address, headers=headers, verify=False)  # reading certificates takes a while
    with tei.client:
        yield tei


def classify(server: LiveServer, path: str, *given: Any, **options: Any) -> list[Any]:
    with client(server, path) as tei:
        found: list[Any] = tei.classify(*given, **options)
    return found


def scores(result: ClassificationResult) -> dict[str, float]:
    return {each.label: each.score for each in result.scores}


def test_a_flat_list_is_one_input_and_a_nested_one_a_batch(server: LiveServer) -> None:
    def ask(inputs: Any) -> Any:
        return server.http.post("/predict", json={"inputs": inputs}).json()

    alone, pair = ask("w1"), ask(["w1", "w2"])
    assert ask(["w1"]) == alone
    assert pair != alone
    assert ask([["w1"]]) == [alone]
    assert ask([["w1", "w2"], ["w1"]]) == [pair, alone]
    assert sorted((each["score"] for each in alone), reverse=True) == [e["score"] for e in alone]
    assert server.http.post("/invocations", json={"inputs": "w1"}).json() == alone


def test_raw_scores_and_truncation(server: LiveServer) -> None:
    never = {"X-Offramp-Exit": '{"rule": "never"}'}
    (own,) = server.answer("w1", exit={"rule": "never"}, **{"return": ["logits"]})["results"]
    with client(server, **never) as tei:
        (raw,) = tei.classify("w1", raw_scores=True)
    assert [e.score for e in raw.scores] == pytest.approx(sorted(own["logits"])[::-1], abs=1e-6)
    long = "w1 " * 2 * MAX_TOKENS
    (own,) = server.answer(long, truncate=True)["results"]
    assert [scores(e) for e in classify(server, "", long, truncate=True)] == [own["scores"]]


def test_headers_tell_times_and_sizes_as_tei_does(server: LiveServer) -> None:
    headers = server.http.post("/predict", json={"inputs": ["w1", "w2 w3"]}).headers
    assert headers["x-compute-type"] == "cpu"
    assert headers["x-compute-characters"] == "7"
    assert int(headers["x-compute-tokens"]) == len(tiny_tokenizer().encode("w1", "w2 w3").ids)
    total = int(headers["x-total-time"])
    assert total == int(headers["x-compute-time"])
    for part in ("tokenization", "queue", "inference"):
        assert 0 <= int(headers[f"x-{part}-time"]) <= total


def test_client_reads_what_the_model_is_and_a_texts_tokens(server: LiveServer) -> None:
    tokenizer = tiny_tokenizer()
    with client(server) as tei:
        assert tei.health()
        info = tei.info()
        found = tei.tokenize(["w1 w2", "w3"])
        (bare,) = tei.tokenize("w1", add_special_tokens=False)
        (long,) = tei.tokenize("w1 " * 3 * MAX_TOKENS)  # to measure texts before they are sent
        assert tei.prompt_names() == []
    assert (info.server_model_id, info.server_model_dtype) == ("tiny", "float32")
    assert info.max_input_length == MAX_TOKENS
    assert info.server_model_metadata.label2id == {"negative": 0, "neutral": 1, "positive": 2}
    assert [each.get_ids() for each in found] == [
        tokenizer.encode(text).ids for text in ("w1 w2", "w3")
    ]
    first = found[0].tokens
    assert [token.special for token in first] == [True, False, False, True]
    assert (first[0].start, first[2].text, first[2].start, first[2].stop) == (None, "w2", 3, 5)
    assert len(bare.tokens) == 1
    assert len(long.tokens) == 3 * MAX_TOKENS + 2


def test_several_models_are_told_apart_by_the_address(servers: LiveServer) -> None:
    (found,) = classify(servers, "/models/multi_label", "w1")
    (own,) = servers.answer("w1", model="multi_label")["results"]
    assert scores(found) == own["scores"]
