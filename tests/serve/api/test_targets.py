"""Asking by target: in a request, in a profile, as the default, by PUT."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.errors import InvalidBundle
from tests.serve.api.conftest import StartServer
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.ladders import (
    BOLD,
    DECIDED,
    EITHER,
    NEVER,
    SAFE,
    certificate,
    certify,
    decisions,
    of_reference,
)
from tests.serve.support.live_server import LiveServer, Problem, serving_bundles
from tests.support.tiny import DEPTH

PATH = "/v1/models/tiny/policy"
PROFILES = {
    "exact": NEVER,
    "sure": {"target": {"max_disagreement": 0.01}},
    "quick": {"target": {"max_layers": 2}},
}
POLICY = {"default": "sure", "profiles": PROFILES}
AT_SAFE = {
    "exit_rule": SAFE,
    "expected_layers": pytest.approx(2.8),
    "certificate": certificate("disagreement", 0.01, 0.006),
}


@pytest.fixture(scope="module")
def certified(
    bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    """Serve a bundle that is certified in both precisions, with targets in its policy."""
    folder = tmp_path_factory.mktemp("certified") / "tiny"
    shutil.copytree(bundle_folder, folder)
    certify(folder, "fp32", "int8")
    rewrite_manifest(folder, lambda manifest: manifest.update(policy=POLICY))
    with serving_bundles(folder, precision="int8") as server:
        yield server


def became(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in AT_SAFE if name in answer}


@pytest.mark.parametrize(
    "exit_choice",
    [{"target": {"max_disagreement": 0.01}}, "sure", {"profile": "sure"}, None],
)
def test_answer_says_what_the_target_has_become(certified: LiveServer, exit_choice: Any) -> None:
    answer = certified.answer(["w1 w2", "w3"], **({"exit": exit_choice} if exit_choice else {}))
    assert became(answer) == AT_SAFE
    same = certified.answer(["w1 w2", "w3"], exit=SAFE)
    assert answer["results"] == same["results"]
    assert not became(same)
    assert not became(certified.answer("w1", exit="exact"))


REFUSED: list[tuple[Any, str, str]] = [
    *(
        ({"target": target}, "invalid_request", place)
        for target, place in [
            ({}, "target"),
            ({"certified": True}, "target"),
            ({"speedup": None}, "target"),
            (None, "target"),
            ({"max_cost": 1}, "target.max_cost"),
            ({"speedup": 0.5}, "target.speedup"),
            ({"speedup": True}, "target.speedup"),
            *(({"max_disagreement": share}, "target.max_disagreement") for share in (0.5, 1)),
            *(({"max_loss": share}, "target.max_loss") for share in (0.5, 2, -0.1)),
            ({"max_layers": 0}, "target.max_layers"),
            ({"max_ms": 0}, "target.max_ms"),
            ({"max_ms": "5"}, "target.max_ms"),
            ({"speedup": 2, "certified": 1}, "target.certified"),
        ]
    ),
    ({"target": {"max_layers": 1.2}}, "target_out_of_reach", "target"),
    ({"target": {"max_layers": 2, "max_disagreement": 0.01}}, "target_out_of_reach", "target"),
]


@pytest.mark.parametrize(("wish", "code", "place"), REFUSED)
def test_wrong_target_is_refused_saying_where(
    certified: LiveServer, wish: Any, code: str, place: str
) -> None:
    problem = certified.refusal("w1", exit=wish)
    assert (problem.status, problem.code) == (422, code)
    assert problem.message.startswith(f"exit.{place}: ")
    before = certified.http.get(PATH).json()
    put = Problem.of(certified.put_policy({"default": NEVER, "profiles": {"odd": wish}}))
    assert (put.status, put.code) == (422, code)
    assert f"profiles.odd.{place}: " in put.message
    assert certified.http.get(PATH).json() == before


@pytest.mark.parametrize(
    "exit_choice",
    [
        {"target": {"speedup": 2}, "rule": "never"},
        {"target": {"speedup": 2}, "profile": "sure"},
        {"target": {"speedup": 2}, "x": 1},
        {"max_disagreement": 0.01},
    ],
)
def test_target_stands_alone(certified: LiveServer, exit_choice: Any) -> None:
    problem = certified.refusal("w1", exit=exit_choice)
    assert (problem.status, problem.code) == (422, "invalid_request")


def test_policy_shows_targets_as_written_and_what_they_have_become(certified: LiveServer) -> None:
    report = certified.http.get(PATH).json()
    assert report["policy"] == {**POLICY, "limits": {"overrides": "any"}}
    safe = {
        "rule": SAFE,
        "expected_layers": pytest.approx(2.8),
        "certificate": AT_SAFE["certificate"],
    }
    assert report["resolved"] == {
        "default": safe,
        "exact": {"rule": NEVER},
        "sure": safe,
        "quick": {
            "rule": BOLD,
            "expected_layers": pytest.approx(2.0),
            "certificate": certificate("disagreement", 0.03, 0.02),
        },
    }
    shown = {"model": "tiny", "rule": "entropy"}
    assert certified.metric("offramp_threshold", profile="default", **shown) == 0.2
    assert certified.metric("offramp_threshold", profile="quick", **shown) == 0.5


def test_model_shows_its_rungs_with_the_times_of_this_machine(certified: LiveServer) -> None:
    ladder = certified.http.get("/v1/models/tiny").json()["ladder"]
    rungs = ladder.pop("rungs")
    assert 0 <= ladder.pop("noise") < 1
    assert ladder == {
        "certified": True,
        "reference": None,
        "note": None,
        "metric": "accuracy",
        "tolerance": None,
        "mean_tokens": 8.0,
        "decisions": [],
    }
    assert [rung["expected_layers"] for rung in rungs] == pytest.approx([4, 3.6, 2.8, 2, 1.35])
    assert [rung["disagreement"] for rung in rungs] == [0, 0.001, 0.006, 0.02, 0.08]
    assert [len(rung["certificates"]) for rung in rungs] == [0, 1, 2, 2, 0]
    for rung in rungs:
        assert rung["speedup"] == pytest.approx(rungs[0]["expected_ms"] / rung["expected_ms"])
    fastest = certified.answer("w1", exit={"target": {"max_ms": rungs[-1]["expected_ms"]}})
    assert fastest["exit_rule"] in [rung["rule"] for rung in rungs]


def test_put_turns_targets_at_run_time(
    start_server: StartServer, bundle_copy: Callable[..., Path]
) -> None:
    server = start_server(certify(bundle_copy("tiny"), "fp32"))

    def put(policy: Any) -> dict[str, Any]:
        response = server.put_policy(policy)
        assert response.status_code == 200, response.text
        change: dict[str, Any] = response.json()
        return change

    assert put(POLICY)["resolved"]["default"]["rule"] == SAFE
    assert became(server.answer("w1")) == AT_SAFE
    put({"default": {"target": {"max_disagreement": 0.03}}})
    assert server.answer("w1")["exit_rule"] == BOLD

    put({**POLICY, "limits": {"overrides": "profiles"}})
    assert became(server.answer("w1", exit="quick"))["exit_rule"] == BOLD
    refused = server.refusal("w1", exit={"target": {"max_disagreement": 0.01}})
    assert (refused.status, refused.code) == (403, "override_forbidden")

    # A certificate is of its very rule.
    change = put({"default": PROFILES["sure"], "limits": {"min_layer": 2}})
    assert change["resolved"]["default"]["rule"] == {**NEVER, "min_layer": 2}
    bold = became(server.answer("w1", exit={"target": {"max_layers": 2.5}}))
    assert bold == {
        "exit_rule": {**BOLD, "min_layer": 2},
        "expected_layers": pytest.approx(2.4),
        "certificate": None,
    }


NONE = "No rule of tiny is certified: run `offramp calibrate BUNDLE --data FILE`"


def test_without_certificates_quality_targets_run_in_full_and_speed_targets_cut(
    server: LiveServer,
) -> None:
    ladder = server.http.get("/v1/models/tiny").json()["ladder"]
    assert (ladder["certified"], ladder["note"], ladder["mean_tokens"]) == (False, NONE, 32)
    rules = [rung["rule"] for rung in ladder["rungs"]]
    assert [(rule["rule"], rule.get("layer")) for rule in rules] == [
        ("never", None),
        ("layer", 3),
        ("layer", 2),
        ("layer", 1),
    ]
    answer = server.answer("w1", exit={"target": {"max_disagreement": 0.3}})
    assert became(answer) == {"exit_rule": NEVER, "expected_layers": DEPTH, "certificate": None}
    assert answer["note"] == f"every text runs in full: {NONE}"
    answer = server.answer("w1", exit={"target": {"max_layers": 2.5}})
    assert became(answer) == {
        "exit_rule": {"rule": "layer", "layer": 2},
        "expected_layers": 2,
        "certificate": None,
    }
    assert answer["results"][0]["exit"]["layer"] == 2
    problem = server.refusal("w1", exit={"target": {"max_layers": 2, "certified": True}})
    assert (problem.status, problem.code) == (422, "target_out_of_reach")


@pytest.mark.parametrize(
    ("made_for", "served_as", "note"),
    [
        ({}, {"precision": "int8"}, "certified for fp32, not for int8"),
        ({"weights": "1" * 64}, {}, "for other weights of fp32"),
        ({}, {"active_exits": {"tiny": [1, 3, 4]}}, "exits at 1, 2, 3, 4, not at 1, 3, 4"),
    ],
)
def test_certificates_hold_for_their_variant_only(
    start_server: StartServer,
    bundle_copy: Callable[..., Path],
    caplog: pytest.LogCaptureFixture,
    made_for: dict[str, Any],
    served_as: dict[str, Any],
    note: str,
) -> None:
    folder = certify(bundle_copy("tiny"), "fp32", **made_for)
    server = start_server(folder, **served_as)
    ladder = server.http.get("/v1/models/tiny").json()["ladder"]
    assert ladder["certified"] is False
    assert note in ladder["note"]
    # The log names the bundle's folder, which is not the clients' business.
    assert ladder["note"].replace("BUNDLE", str(folder)) in caplog.text
    assert str(folder) not in ladder["note"]
    answer = server.answer("w1", exit={"target": {"max_disagreement": 0.03}})
    assert (answer["exit_rule"], answer["certificate"]) == (NEVER, None)


def test_a_target_about_decisions_names_both_certificates_in_every_form(
    start_server: StartServer, bundle_copy: Callable[..., Path]
) -> None:
    server = start_server(certify(bundle_copy("tiny"), "fp32", decisions=decisions()))
    wanted = {"target": {"max_missed": 0.01, "max_false_alarms": 0.02}}
    profiles = {"guard": {"exit": wanted, "flag": DECIDED, "windows": {"combine": "any"}}}
    put = server.put_policy({"default": "guard", "profiles": profiles})
    assert put.status_code == 200, put.text
    both = [certificate("missed", 0.01, 0.002), certificate("false_alarms", 0.02, 0.01)]
    assert put.json()["resolved"]["guard"]["certificates"] == both
    ladder = server.http.get("/v1/models/tiny").json()["ladder"]
    assert [each["flag"] for each in ladder["decisions"]] == [DECIDED]
    assert [rung["rule"] for rung in ladder["decisions"][0]["rungs"]][-1] == EITHER
    for ask in ({}, {"exit": "guard"}, {"exit": wanted, "flag": DECIDED}):
        answer = server.answer("w1 w2", **ask)
        assert (answer["exit_rule"], answer["certificates"]) == (EITHER, both)
        assert answer["certificate"] == both[0]
    long = server.answer(" ".join(["w1"] * 200))
    assert (long["exit_rule"], long["certificate"], long["certificates"]) == (EITHER, None, [])
    other = server.answer("w1 w2", flag={"negative": 0.7})
    assert (other["exit_rule"], other["certificates"]) == (NEVER, [])
    problem = server.refusal("w1 w2", exit=wanted)
    assert problem.code == "invalid_rule"
    guarded = server.http.post("/api/v1/text/contents", json={"contents": ["w1 w2"]})
    assert guarded.status_code == 200, guarded.text
    assert json.loads(guarded.headers["x-offramp-certificate"]) == both
    assert json.loads(guarded.headers["x-offramp-exit-rule"]) == EITHER
    embed = server.http.post("/predict", json={"inputs": "w1 w2"})
    assert json.loads(embed.headers["x-offramp-certificate"]) == both


def test_a_target_from_a_reference_is_answered_with_that_certificate_also_at_full_depth(
    start_server: StartServer, bundle_copy: Callable[..., Path]
) -> None:
    server = start_server(certify(bundle_copy("tiny"), "fp32", **of_reference()))
    wanted = {"target": {"max_disagreement": 0.04, "from": "reference"}}
    put = server.put_policy({"default": "mine", "profiles": {"mine": wanted}})
    assert put.status_code == 200, put.text
    assert put.json()["policy"]["profiles"]["mine"] == wanted
    known = certificate("reference", 0.04, 0.025)
    assert put.json()["resolved"]["mine"]["certificate"] == known
    for ask in ({}, {"exit": wanted}):
        answer = server.answer("w1 w2", **ask)
        assert (answer["exit_rule"], answer["certificate"]) == (SAFE, known)
    predicted = server.http.post("/predict", json={"inputs": "w1 w2"})
    assert json.loads(predicted.headers["x-offramp-certificate"]) == known
    ladder = server.http.get("/v1/models/tiny").json()["ladder"]
    assert ladder["reference"]["name"] == "my-topics"
    assert ladder["rungs"][0]["reference_disagreement"] == 0.022
    assert [c["loss"] for c in ladder["rungs"][0]["certificates"]] == ["reference"]
    problem = server.refusal(
        "w1 w2", exit={"target": {"max_disagreement": 0.02, "from": "reference"}}
    )
    assert problem.code == "target_out_of_reach"
    assert "differs from the reference for 2.20 % of the certifying texts" in problem.message


def test_confidence_is_read_at_the_certified_temperatures(
    start_server: StartServer, bundle_copy: Callable[..., Path]
) -> None:
    cold = [0.001] * DEPTH
    server = start_server(certify(bundle_copy("tiny"), "fp32", temperatures=cold))
    assert [e["temperature"] for e in server.http.get("/v1/models/tiny").json()["exits"]] == cold
    confident = {"rule": "confidence", "threshold": 0.999}
    assert server.answer("w1 w2", exit=confident)["results"][0]["exit"]["layer"] == 1


def test_bundle_whose_policy_cannot_be_had_is_refused_at_the_start(
    start_server: StartServer, bundle_copy: Callable[..., Path]
) -> None:
    folder = bundle_copy("tiny")
    policy = {"default": {"target": {"max_ms": 1e-6}}}
    rewrite_manifest(folder, lambda manifest: manifest.update(policy=policy))
    with pytest.raises(InvalidBundle):
        start_server(folder)
