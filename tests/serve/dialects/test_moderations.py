"""OpenAI's client asks for moderations, and is answered as our own route answers."""

from typing import Any

import openai
import pytest

from tests.serve.support.live_server import LiveServer
from tests.serve.support.spoken import LABEL, MODERATIONS

TEXTS = ["w1", "w2 w3", "w5 w9 w1"]


def moderate(server: LiveServer, given: Any, **fields: Any) -> list[dict[str, Any]]:
    address, model = f"http://127.0.0.1:{server.port}/v1", fields.pop("model", "tiny")
    with openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client:
        found = client.moderations.create(input=given, model=model, extra_body=fields)
    assert found.id.startswith("modr-")
    assert found.model == model
    return [each.to_dict() for each in found.results]


def test_a_flag_decides_which_categories_are_true(server: LiveServer) -> None:
    own = server.answer(TEXTS)["results"]
    middle = sorted(each["scores"][LABEL] for each in own)[1]
    found = moderate(server, TEXTS, flag={LABEL: middle})
    assert [each["category_scores"] for each in found] == [each["scores"] for each in own]
    assert [each["flagged"] for each in found] == [e["scores"][LABEL] >= middle for e in own]
    for each in found:
        assert each["categories"] == {
            label: label == LABEL and each["flagged"] for label in each["category_scores"]
        }
        assert set(each["category_applied_input_types"]) == set(each["categories"])
        assert list(each["category_applied_input_types"].values()) == [["text"]] * 3


def test_without_a_flag_each_of_several_labels_flags_from_one_half_on(
    servers: LiveServer,
) -> None:
    found = moderate(servers, TEXTS, model="multi_label")
    seen = set()
    for each in found:
        scores = each["category_scores"]
        assert each["categories"] == {label: scores[label] >= 0.5 for label in scores}
        assert each["flagged"] == any(each["categories"].values())
        seen |= set(each["categories"].values())
    assert seen == {True, False}


def test_parts_are_one_text_and_blank_ones_are_not_flagged(server: LiveServer) -> None:
    parts = [{"type": "text", "text": text} for text in ("w1", "w2")]
    flag = {LABEL: 0.0}
    assert moderate(server, parts, flag=flag) == moderate(server, "w1\nw2", flag=flag)
    (blank,) = moderate(server, " ", flag=flag)
    assert blank["flagged"] is False
    assert set(blank["category_scores"].values()) == {0}


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        ("single_label", "w1", "single_label has no flag to decide by"),
        ("regression", "w1", "regression gives a value"),
        ("token", "w1", "token labels tokens"),
        ("multi_label", [], "input: must be a text, a list"),
        ("multi_label", ["w1", 3], "input: must be a text, a list"),
        ("multi_label", [{"type": "text"}], "input[0]: must be a part"),
        ("multi_label", [{"type": "image_url", "image_url": {"url": ""}}], "input[0]: is an image"),
        ("multi_label", ["w1"] * 257, "input: 257 texts"),
    ],
)
def test_what_cannot_be_moderated_is_refused(
    servers: LiveServer, model: str, given: Any, said: str
) -> None:
    answer = servers.http.post(MODERATIONS, json={"model": model, "input": given})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, 400)
    assert error["message"].startswith(said)
