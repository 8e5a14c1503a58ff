"""Guardrails against a running server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.spoken import BASIC, CONTENTS, LABEL, PARAMETERS
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.tiny import WORDS

TEXTS = [" ".join(WORDS[i : i + 3]) for i in range(0, 60, 4)]


@pytest.fixture(scope="module")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    """A guard is the default; profile `bare` has no flag."""
    with serving_bundles(bundle_folder) as live:
        (middle,) = sorted(scores(live, TEXTS))[len(TEXTS) // 2 :][:1]
        guard = {"flag": {LABEL: middle}, "windows": {"stride": 8, "combine": "any"}}
        profiles = {"guard": guard, "bare": {"rule": "never"}}
        locks = ("flag", "windows", "unchecked", "special_tokens")
        limits = dict.fromkeys(locks, "any")
        policy = {"default": "guard", "profiles": profiles, "limits": limits}
        put = live.put_policy(policy)
        assert put.status_code == 200
        yield live


def scores(server: LiveServer, texts: list[str]) -> list[float]:
    return [result["scores"][LABEL] for result in server.answer(texts)["results"]]


def detect(
    server: LiveServer, contents: list[str], headers: Any = None, **parameters: Any
) -> httpx.Response:
    body = {"contents": contents, "detector_params": parameters}
    return server.http.post(CONTENTS, json=body, headers=headers)


def decide(server: LiveServer, texts: list[str] | None, **fields: Any) -> httpx.Response:
    body = {"texts": texts, "input_type": "request", **fields}
    return server.http.post(BASIC, json=body)


def test_both_decide_as_our_own_route_does(server: LiveServer) -> None:
    own = server.answer(TEXTS)["results"]
    assert 0 < sum(result["flagged"] for result in own) < len(TEXTS)
    found = detect(server, TEXTS)
    for text, result, detections in zip(TEXTS, own, found.json(), strict=True):
        expected = {
            "start": 0,
            "end": len(text),
            "text": text,
            "detection": "single_label_classification",
            "detection_type": LABEL,
            "score": result["scores"][LABEL],
        }
        assert detections == ([expected] if result["flagged"] else [])
        answer = decide(server, [text]).json()
        if result["flagged"]:
            reason = f"flagged by the classifier: text 1: {LABEL} {result['scores'][LABEL]}"
            assert answer == {"action": "BLOCKED", "blocked_reason": reason}
        else:
            assert answer == {"action": "NONE"}
    assert found.headers["x-offramp-exit-layer"].split(",") == [
        str(result["exit"]["layer"]) for result in own
    ]


def test_thresholds_profiles_and_the_dial_are_heeded(server: LiveServer) -> None:
    def flagged(headers: Any = None, **parameters: Any) -> list[bool]:
        response = detect(server, TEXTS, headers, **parameters)
        assert response.status_code == 200, response.text
        return [bool(found) for found in response.json()]

    rule = {"rule": "layer", "layer": 1}
    first = [r["scores"][LABEL] >= 0.4 for r in server.answer(TEXTS, exit=rule)["results"]]
    full = [score >= 0.4 for score in scores(server, TEXTS)]
    assert first != full
    assert flagged(threshold=0.4) == flagged(flag={LABEL: 0.4}, profile="bare") == full
    assert flagged(flag={LABEL: 0.4}, exit=rule) == first
    assert flagged({"X-Offramp-Exit": json.dumps(rule)}, flag={LABEL: 0.4}) == first
    assert flagged({"detector-id": "guard"}, threshold=0) == [True] * len(TEXTS)
    assert flagged({"detector-id": "tiny"}) == flagged()
    parameters = {PARAMETERS: {"exit": rule, "flag": {LABEL: 0.4}}}
    actions = [decide(server, [text], **parameters).json()["action"] for text in TEXTS]
    assert actions == ["BLOCKED" if each else "NONE" for each in first]


def test_what_is_deferred_passes_and_a_header_says_so(server: LiveServer) -> None:
    low, high = sorted(scores(server, TEXTS))[4::6][:2]
    flag = {LABEL: {"flag": high, "defer": low}}
    own = server.answer(TEXTS, flag=flag)["results"]
    found = detect(server, [*TEXTS, " "], flag=flag)
    assert [bool(each) for each in found.json()] == [*[r["flagged"] for r in own], False]
    said = found.headers["x-offramp-deferred"].split(",")
    assert said == [str(r["deferred"]).lower() for r in own] + ["false"]
    assert len(set(said)) == 2
    text = TEXTS[said.index("true")]
    answer = decide(server, [text], **{PARAMETERS: {"flag": flag}})
    assert (answer.json(), answer.headers["x-offramp-deferred"]) == ({"action": "NONE"}, "true")
    # A threshold of the client takes the place of `flag` alone.
    above = detect(server, [text], flag=flag, threshold=1)
    assert (above.json(), above.headers["x-offramp-deferred"]) == ([[]], "true")
    assert detect(server, [text], flag=flag, threshold=low / 2).json()[0]
    assert "x-offramp-deferred" not in detect(server, [text]).headers


def test_without_a_flag_every_label_comes_back_with_its_score(server: LiveServer) -> None:
    # As the FMS orchestrator asks, which compares the scores with a threshold of its own.
    body = {"contents": TEXTS[:2], "detector_params": {}}
    policy = server.http.get("/v1/models/tiny/policy").json()["policy"]
    policy["detectors"] = {"hate and more": "bare", "guarding": "guard"}
    assert server.put_policy(policy).status_code == 200
    own = server.answer(TEXTS[:2], exit="bare")["results"]
    headers = {"detector-id": "hate and more"}
    found = server.http.post(CONTENTS, json=body, headers=headers).json()
    scores = [{each["detection_type"]: each["score"] for each in of_text} for of_text in found]
    assert scores == [result["scores"] for result in own]
    assert sum(map(len, detect(server, TEXTS[:2], headers, threshold=0.5).json())) == 2
    assert detect(server, TEXTS, {"detector-id": "guarding"}).json() == detect(server, TEXTS).json()
    decided = decide(server, ["w1"], **{PARAMETERS: {"profile": "bare"}})
    assert decided.status_code == 422
    unknown = detect(server, ["w1"], {"detector-id": "other"}).json()["message"]
    assert unknown.startswith("detector-id: 'other'")
    policy["detectors"] = {"a": "gone"}
    assert server.put_policy(policy).status_code == 422


def test_special_tokens_in_a_text_are_text_for_a_guardrail(server: LiveServer) -> None:
    padded = "w1 " + "[PAD] [SEP] " * 9
    text, ids = (
        server.answer(padded, special_tokens=each)["results"][0]["scores"][LABEL]
        for each in ("text", "ids")
    )
    assert text != ids
    assert server.answer(padded)["results"][0]["scores"][LABEL] == ids
    for asked, score in (({}, text), ({"special_tokens": "ids"}, ids)):
        (found,) = detect(server, [padded], threshold=0, **asked).json()
        assert found[0]["score"] == score
        decided = decide(server, [padded], **{PARAMETERS: {"threshold": 0, **asked}}).json()
        assert f"{LABEL} {score}" in decided["blocked_reason"]


def test_a_long_text_is_seen_whole(server: LiveServer) -> None:
    worst = max(TEXTS, key=lambda text: scores(server, [text])[0])
    best = min(TEXTS, key=lambda text: scores(server, [text])[0])
    long = " ".join([best] * 40 + [worst] * 40)
    (own,) = server.answer(long)["results"]
    assert own["windows"]["count"] > 3
    assert own["flagged"]
    (found,) = detect(server, [long]).json()
    assert found[0]["detection_type"] == LABEL
    assert (
        decide(server, [best, long])
        .json()["blocked_reason"]
        .startswith("flagged by the classifier: text 2")
    )


def test_nothing_to_look_at_is_not_flagged_and_the_rest_is_checked(server: LiveServer) -> None:
    assert detect(server, []).json() == []
    assert detect(server, ["", " "], threshold=0).json() == [[], []]
    assert decide(server, None).json() == {"action": "NONE"}
    found = detect(server, ["", "w1", ""], threshold=0)
    assert [bool(each) for each in found.json()] == [False, True, False]
    assert found.headers["x-offramp-exit-layer"] == "4,4,4"
    for contents in ([], [""]):
        assert detect(server, contents, profile="bare").json() == [[]] * len(contents)
        wrong = {"exit": {"rule": "layer", "layer": 99}, "flag": {LABEL: 0.5}}
        assert detect(server, contents, **wrong).status_code == 422


def test_texts_that_stand_in_messages_alone_are_looked_at(server: LiveServer) -> None:
    for content in ("w3", [{"type": "text", "text": "w3"}]):
        messages = [{"role": "system", "content": "w1"}, {"role": "user", "content": content}]
        answer = decide(
            server, ["w1"], structured_messages=messages, **{PARAMETERS: {"threshold": 0}}
        )
        assert answer.json()["blocked_reason"].count("text ") == 2
        assert "; text 2: " in answer.json()["blocked_reason"]


def test_entities_are_detections_with_their_place(tmp_path: Path) -> None:
    with serving_bundles(write_task_bundle(tmp_path, Kind("token"))) as tagger:
        text, flag = " ".join(WORDS[:40]), {"PER": 0.9}
        (own,) = tagger.answer(text, flag=flag)["results"]
        (found,) = detect(tagger, [text], flag=flag).json()
        entities = [e for e in own["entities"] if e["entity"] == "PER" and e["score"] >= 0.9]
        assert 0 < len(entities) < len(own["entities"])
        assert [(d["start"], d["end"], d["score"], d["text"]) for d in found] == [
            (e["start"], e["end"], e["score"], text[e["start"] : e["end"]]) for e in entities
        ]
        assert {d["detection_type"] for d in found} == {"PER"}
        assert {d["detection"] for d in found} == {"token_classification"}
        policy = {"default": "guard", "profiles": {"guard": {"flag": flag}}}
        put = tagger.put_policy({**policy, "limits": {"flag": "none"}}, "token")
        assert put.status_code == 200, put.text
        # Other entities have other scores, so that the flag would look at something else.
        assert tagger.refusal(text, aggregation="none").code == "override_forbidden"
        assert tagger.answer(text, aggregation="simple")["results"][0]["flags"] == own["flags"]
