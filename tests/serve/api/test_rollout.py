"""Rollouts over HTTP and gRPC, on a real server."""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from serve.access.keys import Scope
from serve.logs import TRAIL, fields_of
from tests.serve.api.conftest import StartServer
from tests.serve.http.grpc.conftest import asked, stub
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, Problem, serving_bundles, serving_grpc
from tests.serve.support.spoken import BODIES, V1
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.patience import until
from tests.support.tiny import DEPTH

POLICY = "/v1/models/tiny/policy"
PATH = f"{POLICY}/rollout"
FIRST = {"default": {"rule": "layer", "layer": 1}}
START: dict[str, Any] = {
    "patch": FIRST, "steps": [50], "hold_s": 3600, "bounds": {"layers": 3}
}  # fmt: skip
FLAG = {"flag": {"negative": 0.5}}
CLIENTS = [f"client {number}" for number in range(12)]


def move(server: LiveServer, tail: str = "", **body: Any) -> dict[str, Any]:
    response = server.http.post(f"{PATH}{tail}", json=body)
    assert response.status_code == 200, response.text
    moved: dict[str, Any] = response.json()
    return moved


def refused(server: LiveServer, tail: str = "", **body: Any) -> Problem:
    return Problem.of(server.http.post(f"{PATH}{tail}", json=body))


def shown_once(server: LiveServer, ready: Callable[[Any], Any]) -> Any:
    """Return what is told of the rollout once its candidate's arm is as a test waits for."""

    def shown() -> Any:
        found = server.http.get(PATH).json()
        return found if ready(found["arms"]["candidate"]) else None

    return until(shown)


def arms(server: LiveServer, path: str = V1) -> list[str | None]:
    """Return the arm of each client."""
    answers = [
        server.http.post(path, json=BODIES[path], headers={"X-Offramp-Sticky": client})
        for client in CLIENTS
    ]
    assert all(answer.status_code == 200 for answer in answers), answers[0].text
    return [answer.headers.get("x-offramp-arm") for answer in answers]


@pytest.fixture(scope="module")
def halved(bundle_folder: Path) -> Iterator[LiveServer]:
    """A server of which half the requests follow a candidate; no test may end that."""
    with serving_grpc(bundle_folder) as live:
        move(live, **START)
        yield live


def test_client_is_in_one_arm_in_every_dialect_and_the_answer_says_which(
    halved: LiveServer,
) -> None:
    known = arms(halved)
    assert {*known} == {"live", "candidate"}
    for path in BODIES:
        assert arms(halved, path) == known, path
    with stub(halved.grpc_address) as calls:
        for client, arm in zip(CLIENTS, known, strict=True):
            metadata = (("x-offramp-sticky", client),)
            answer, call = calls.ModelInfer.with_call(asked(["w1"]), metadata=metadata)
            assert answer.parameters["arm"].string_param == arm
            assert ("x-offramp-arm", arm) in [tuple(each) for each in call.trailing_metadata()]


def test_candidate_answers_its_own_clients_alone(halved: LiveServer) -> None:
    left: dict[str, set[int]] = {"live": set(), "candidate": set()}
    for client in CLIENTS:
        headers = {"X-Offramp-Sticky": client}
        answer = halved.http.post("/v1/classify", json={"inputs": "w1"}, headers=headers).json()
        assert answer["policy_version"] == 2
        left[answer["arm"]].add(answer["results"][0]["exit"]["layer"])
    assert left == {"live": {DEPTH}, "candidate": {1}}


def test_errors_name_their_arm_too(halved: LiveServer) -> None:
    problem = halved.classify("w1", exit={"profile": "nothing"})
    assert problem.status_code == 422
    assert problem.headers["x-offramp-arm"] in ("live", "candidate")


def test_what_is_told_of_a_rollout(halved: LiveServer) -> None:
    arms(halved)
    shown = shown_once(halved, lambda arm: arm["answers"])
    assert (shown["state"], shown["step"], shown["percent"]) == ("running", 0, 50)
    assert shown["verdict"] == "too early"
    assert shown["ends_at"] > shown["since"]
    assert shown["candidate"]["default"] == FIRST["default"]
    assert "id" not in shown  # who knows it may choose the arm
    candidate, live = shown["arms"]["candidate"], shown["arms"]["live"]
    assert {*candidate["exits"]} == {"1"}
    assert candidate["layers"]["mean"] == 1
    assert "verdicts" in candidate
    assert live["verdicts"] == {}
    [entry] = shown["history"]
    assert (entry["action"], entry["by"], entry["percent"]) == ("rollout", "anonymous", 50)


@pytest.mark.parametrize("value", ["", "x" * 257, "caf\u00e9"])
def test_header_that_cannot_decide_is_refused_with_and_without_a_rollout(
    server: LiveServer, halved: LiveServer, value: str
) -> None:
    for live in (server, halved):
        headers = {"X-Offramp-Sticky": value.encode("latin-1")}
        answer = live.http.post("/v1/classify", json={"inputs": "w1"}, headers=headers)  # type: ignore[arg-type]
        problem = Problem.of(answer)
        assert problem.status == 422
        assert problem.message.startswith("x-offramp-sticky: must be 1 to 256 printable")


def test_server_without_a_rollout_says_nothing_of_arms(server: LiveServer) -> None:
    assert server.http.get(PATH).json() == {"model": "tiny", "state": "none"}
    answer = server.classify("w1")
    assert "x-offramp-arm" not in answer.headers
    assert "arm" not in answer.json()
    assert refused(server, "/promote", version=1)[:2] == (409, "rollout_conflict")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bounds": {}}, "bounds: at least one bound is needed"),
        ({"bounds": {"layers": 0}}, "bounds.layers: "),
        ({"bounds": {"layers": DEPTH}}, "bounds.layers: no candidate could ever break or keep"),
        ({"bounds": {"speed": 1}}, "bounds.speed: "),
        ({"delta": 0.1}, "delta: "),
        ({"by": "key"}, "by: "),
        ({"steps": []}, "steps: "),
        ({"steps": [5, 5]}, "steps: each step must be larger than the one before"),
        ({"steps": [0.0]}, "steps[0]: "),
        ({"steps": [50, 101]}, "steps[1]: "),
        ({"steps": list(range(1, 30))}, "steps: "),
        ({"hold_s": -1}, "hold_s: "),
        ({"min_answers": 0}, "min_answers: "),
        ({"on_inconclusive": "hope"}, "on_inconclusive: "),
        ({"policy": FIRST}, "send a policy, or else a patch"),
        ({"patch": {"default": {"rule": "layer", "layer": 9}}}, "default: layer 9 has no exit"),
        ({"patch": {"default": "nothing"}}, "no profile 'nothing'"),
        ({"patch": {"default": {"rule": None, "target": {"max_ms": 1e-9}}}}, "default.target"),
        ({"reasons": "x"}, "reasons: "),
    ],
)
def test_rollout_that_cannot_be_is_refused_with_the_place(
    server: LiveServer, wrong: Mapping[str, Any], said: str
) -> None:
    problem = refused(server, **{**START, **wrong})
    assert problem.status == 422
    assert said in problem.message
    assert server.http.get(PATH).json()["state"] == "none"


def test_bound_on_what_cannot_be_audited_is_refused(tmp_path: Path) -> None:
    folder = write_task_bundle(tmp_path, Kind("regression"), "tiny")
    body = {**START, "patch": {"limits": {"min_layer": 1}}, "bounds": {"disagreement": 0.1}}
    with serving_bundles(folder) as server:
        problem = refused(server, **body)
    assert "bounds.disagreement: answers of this model cannot be audited" in problem.message


def test_bad_candidate_goes_back_by_itself_and_no_request_fails(start_server: StartServer) -> None:
    server = start_server()
    server.put_policy(FIRST)
    move(server, **{**START, "patch": {"default": {"rule": "never", "layer": None}}})

    def failed() -> Any:
        for _ in range(20):
            server.answer(["w1 w2"] * 8)
        found = server.http.get(PATH).json()
        return found if found["state"] == "failed" else None

    shown = until(failed)
    assert shown["why"].startswith("at 50 %: failed: mean exit layer")
    assert (shown["arms"]["candidate"]["errors"], shown["percent"]) == (0, 0)
    live = server.http.get(POLICY).json()
    assert live["policy"]["default"] == FIRST["default"]
    assert (live["source"], live["by"], live["action"]) == ("rollout", "rollout", "failed")
    assert live["rollout"]["state"] == "failed"
    assert server.metric("offramp_rollout_failed", model="tiny") == 1
    assert server.metric("offramp_rollout_percent", model="tiny") == 0
    assert server.metric("offramp_rollout_answers_total", model="tiny", arm="candidate") > 0
    assert "arm" not in server.answer("w1")


def test_both_arms_are_audited_and_promises_count_the_live_one_alone(
    start_server: StartServer,
) -> None:
    server = start_server()
    move(server, **{**START, "audit_share": 1.0, "bounds": {"disagreement": 0.99}})
    for _ in range(20):
        server.answer(["w1 w2", "w3"])

    def audited() -> Any:
        found = server.http.get(PATH).json()["arms"]
        done = sum(found[arm]["disagreement"]["audits"] for arm in ("live", "candidate"))
        return found if done == 40 else None

    shown = until(audited)
    live = shown["live"]["disagreement"]
    assert 0 < live["audits"] < 40
    assert live["differ"] == 0
    quality = server.http.get("/v1/models/tiny/quality").json()["profiles"]["default"]
    assert quality["audits"] == live["audits"]
    agree = server.metric("offramp_audits_total", profile="default", outcome="agree")
    assert agree == live["audits"]


def test_operator_moves_a_rollout_to_its_end(start_server: StartServer) -> None:
    server = start_server()
    started = move(server, **{**START, "steps": [10, 40.5]}, version=1)
    assert started["version"] == 2
    assert started["replicas"] == [{"replica": "local", "version": 2}]
    assert refused(server, **START)[:2] == (409, "rollout_conflict")
    assert refused(server, "/resume")[:2] == (409, "rollout_conflict")
    assert move(server, "/pause", why="lunch")["state"] == "paused"
    assert move(server, "/resume")["state"] == "running"
    assert refused(server, "/promote", version=1)[:2] == (409, "version_conflict")
    assert refused(server, "/promote", why="blind")[:2] == (428, "precondition_required")
    assert move(server, "/promote", version=4)["percent"] == 40.5
    ended = move(server, "/promote", version=5, why="all well")
    assert (ended["state"], ended["percent"]) == ("promoted", 100)
    assert [each["action"] for each in ended["history"]] == [
        "promote", "promote", "resume", "pause", "rollout",
    ]  # fmt: skip
    live = server.http.get(POLICY).json()
    assert (live["policy"]["default"], live["version"]) == (FIRST["default"], 6)
    entries = server.http.get(f"{POLICY}/history").json()["entries"]
    assert entries[0]["changes"] == {
        "default.layer": [None, 1], "default.rule": ["never", "layer"],
    }  # fmt: skip
    assert entries[1]["changes"] == {}
    assert entries[1]["rollout"] == {"state": "running", "percent": 40.5}
    assert move(server, **{**START, "patch": {"default": {"rule": "never", "layer": None}}})
    assert move(server, "/abort", why="no need")["state"] == "aborted"


@pytest.mark.parametrize(
    ("method", "tail", "body"),
    [
        ("PUT", "", {"policy": {"default": {"rule": "layer", "layer": 2}}, "version": 2}),
        ("PATCH", "", {"patch": {"limits": {"overrides": "none"}}, "version": 2}),
        ("POST", "/rollback", {"to": 1}),
    ],
)
def test_change_midway_ends_the_rollout_and_the_answer_says_so(
    start_server: StartServer, method: str, tail: str, body: Any
) -> None:
    server = start_server()
    move(server, **START)
    change = server.http.request(method, f"{POLICY}{tail}", json=body).json()
    action = change["action"]
    told = {"state": "superseded", "percent": 0, "why": f"version 3: {action}"}
    assert change["rollout"] == told
    shown = server.http.get(PATH).json()
    assert (shown["state"], shown["why"], shown["version"]) == ("superseded", told["why"], 3)
    assert "arm" not in server.answer("w1")


def test_locks_and_detectors_are_those_of_the_requests_own_arm(start_server: StartServer) -> None:
    server = start_server()
    patch = {"limits": {"overrides": "none"}, "detectors": {"new": "fast"}}
    move(server, **{**START, "patch": patch})
    own = {"inputs": "w1", "exit": {"rule": "layer", "layer": 2}}
    detector = {"contents": ["w1"], "detector_params": {"flag": {"negative": 0.5}}}
    for client in CLIENTS:
        headers = {"X-Offramp-Sticky": client}
        by_rule = server.http.post("/v1/classify", json=own, headers=headers)
        expected = {"live": 200, "candidate": 403}
        assert by_rule.status_code == expected[by_rule.headers["x-offramp-arm"]]
        named = {**headers, "detector-id": "new"}
        by_name = server.http.post("/api/v1/text/contents", json=detector, headers=named)
        known = by_rule.headers["x-offramp-arm"] == "candidate"
        assert by_name.status_code == (200 if known else 404)
    counted = shown_once(server, lambda arm: arm["errors"])["arms"]["candidate"]
    assert counted["errors"] <= counted["requests"]


def test_guardrails_that_a_candidate_takes_away_are_its_errors(start_server: StartServer) -> None:
    server = start_server()
    guard = {"exit": {"rule": "layer", "layer": 2}, **FLAG}
    policy = {"default": "guard", "profiles": {"guard": guard}, "detectors": {"pii": "guard"}}
    server.put_policy(policy).raise_for_status()
    gone = {**START, "policy": FIRST, "bounds": {"errors": 0.1}}
    del gone["patch"]
    move(server, **gone)
    asked = [
        ("/api/v1/text/contents", {"contents": ["w1"], "detector_params": {}}),
        ("/beta/litellm_basic_guardrail_api", {"texts": ["w1"], "input_type": "request"}),
    ]
    refusals = 0
    for client in CLIENTS:
        for path, body in asked:
            headers = {"X-Offramp-Sticky": client, "detector-id": "pii"}
            answer = server.http.post(path, json=body, headers=headers)
            refusals += answer.status_code != 200
            assert (answer.status_code == 200) == (answer.headers["x-offramp-arm"] == "live")
    assert refusals
    shown_once(server, lambda arm: arm["errors"] == refusals)


@pytest.mark.parametrize(
    "own",
    [
        {"exit": {"profile": "nope"}},
        {"exit": {"rule": "layer", "layer": 1}},
        {"exit": {"target": {"max_ms": 1e-9}}},
        {"timeout_ms": 0.001},
    ],
)
def test_what_a_request_brings_itself_counts_in_no_verdict(
    start_server: StartServer, own: dict[str, Any]
) -> None:
    server = start_server()
    move(server, **{**START, "steps": [100], "audit_share": 1.0, "bounds": {"disagreement": 0.5}})
    for _ in range(12):
        server.classify("w1 w2", **own)
    shown = shown_once(server, lambda arm: arm["uncounted"] == 12)
    arm = shown["arms"]["candidate"]
    assert (arm["requests"], arm["errors"], arm["answers"]) == (0, 0, 0)
    assert arm["disagreement"]["audits"] == 0
    assert "none of the candidate's 12 requests counts" in shown["note"]


def test_what_the_live_policy_refuses_too_is_no_error_of_the_candidate(
    start_server: StartServer,
) -> None:
    server = start_server()
    server.put_policy({"default": {"rule": "never"}, "limits": {"windows": "none"}})
    move(server, **{**START, "steps": [100], "bounds": {"errors": 0.1}})
    guard = ("/beta/litellm_basic_guardrail_api", {"texts": ["w1"], "input_type": "request"})
    windows = ("/v1/classify", {"inputs": "w1", "windows": {"stride": 1}})
    for path, body in (guard, windows):
        assert server.http.post(path, json=body).status_code in (403, 422)
    shown = shown_once(server, lambda arm: arm["uncounted"] == 2)
    assert shown["arms"]["candidate"]["errors"] == 0


def test_profile_that_only_the_candidate_lacks_is_its_error(start_server: StartServer) -> None:
    server = start_server()
    server.put_policy({"default": {"rule": "never"}, "profiles": {"fast": FIRST["default"]}})
    move(server, **{**START, "steps": [100], "patch": {"profiles": {"fast": None}}})
    assert server.classify("w1", exit={"profile": "fast"}).status_code == 422
    shown_once(server, lambda arm: arm["errors"] == 1)


def test_only_keys_that_may_read_choose_by_what_they_are_dealt(
    bundle_folder: Path, tmp_path: Path
) -> None:
    scopes: dict[str, list[Scope]] = {
        "ops": ["admin"], "app": ["classify"], "gateway": ["classify", "read"],
    }  # fmt: skip
    headers = {
        name: {
            "X-API-Key": make_key(tmp_path, *own, name=name),
            "X-Offramp-Sticky": "me",
            "X-Request-Id": "mine",
        }
        for name, own in scopes.items()
    }
    with serving_bundles(bundle_folder, keys=tmp_path / "keys.json") as server:
        server.http.post(PATH, json=START, headers=headers["ops"]).raise_for_status()

        def seen(name: str) -> set[str]:
            answers = [
                server.http.post("/v1/classify", json={"inputs": "w1"}, headers=headers[name])
                for _ in range(40)
            ]
            return {answer.headers["x-offramp-arm"] for answer in answers}

        assert seen("app") == {"live", "candidate"}
        assert len(seen("gateway")) == 1


def test_rollout_that_no_request_follows_says_why(start_server: StartServer) -> None:
    server = start_server()
    one = {"X-Offramp-Sticky": "the only gateway"}

    def arm() -> str:
        answer = server.http.post("/v1/classify", json={"inputs": "w1"}, headers=one)
        return answer.headers["x-offramp-arm"]

    move(server, **START)
    while arm() != "live":
        move(server, "/abort")
        move(server, **START)
    assert {arm() for _ in range(25)} == {"live"}
    shown = until(lambda: (found := server.http.get(PATH).json()).get("note") and found)
    assert "leave that header out" in shown["note"]


def test_trail_says_what_a_rollout_would_change_and_who_was_refused(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server()

    def lines() -> list[Mapping[str, Any]]:
        return [fields_of(each) for each in caplog.records if each.name.startswith(TRAIL)]

    with caplog.at_level(logging.INFO, TRAIL):
        move(server, **START, why="faster")
        refused(server, **START)
        until(lambda: len(lines()) == 2)  # a refusal is written once its answer has been sent
    made, no = lines()
    assert (made["action"], made["rollout"], made["percent"]) == ("rollout", "running", 50)
    assert made["changes"]["default.layer"] == (None, 1)
    assert (no["model"], no["error"]) == ("tiny", "rollout_conflict")
    assert no["changes"]["default.layer"] == (None, 1)
