import itertools
import json
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from serve.api.replicas import Ack, OnlyReplica, Refreshed
from serve.policy.live import LivePolicy, Replacement
from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import FULL_DEPTH, LiveServer, Problem, raw_request
from tests.support.patience import until
from tests.support.tiny import DEPTH, POLICY

PATH = "/v1/models/tiny/policy"
NEVER = {"rule": "never"}
REFUSAL = "change of a policy refused"


def put(server: LiveServer, policy: Any, version: int | None = None) -> Any:
    response = server.http.put(PATH, json={"policy": policy, "version": version})
    assert response.status_code == 200, response.text
    return response.json()


def refused(server: LiveServer, body: Any) -> Problem:
    before = server.http.get(PATH).json()
    problem = Problem.of(server.http.put(PATH, json=body))
    assert server.http.get(PATH).json() == before
    return problem


def leave_at(layer: int) -> dict[str, Any]:
    return {"default": {"rule": "layer", "layer": layer}}


def test_first_policy_is_the_bundles(server: LiveServer) -> None:
    shown = server.http.get(PATH).json()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", shown.pop("at"))
    assert shown == {
        "model": "tiny",
        "version": 1,
        "source": "bundle",
        "by": "bundle",
        "action": "baseline",
        "policy": POLICY.model_dump(exclude_none=True),
        "resolved": {
            "default": {"rule": {"rule": "never"}},
            "balanced": {"rule": {"rule": "entropy", "threshold": 0.6}},
            "fast": {"rule": {"rule": "layer", "layer": 1}},
        },
    }


def test_new_policy_applies_to_the_next_request(start_server: StartServer) -> None:
    server = start_server()
    assert server.layers("w1") == [DEPTH]
    change = put(server, leave_at(2))
    assert change["version"] == 2
    assert change["source"] == "api"
    assert change["replicas"] == [{"replica": "local", "version": 2}]
    assert change["unconfirmed"] == 0
    assert change["dropped_profiles"] == ["balanced", "fast"]
    assert server.layers("w1") == [2]
    assert server.answer("w1")["policy_version"] == 2


def test_replicas_that_cannot_follow_a_policy_do_not_count_as_applying_it(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh = OnlyReplica.refresh_policy

    async def one_refuses(replicas: OnlyReplica, model: str) -> Refreshed:
        """Answer also for one that cannot follow the policy, and one that misses a target of it."""
        [ack] = (await refresh(replicas, model)).acks
        late = replace(ack, replica="late", problem="default: too slow")
        return Refreshed([ack, Ack("old", ack.version - 1, "default: layer 2 has no exit"), late])

    monkeypatch.setattr(OnlyReplica, "refresh_policy", one_refuses)
    change = put(start_server(), leave_at(2))
    assert change["replicas"] == [
        {"replica": "local", "version": 2},
        {"replica": "late", "version": 2, "problem": "default: too slow"},
    ]
    refused = {"replica": "old", "version": 1, "problem": "default: layer 2 has no exit"}
    assert change["refused"] == [refused]
    assert change["unconfirmed"] == 1


def test_what_was_read_can_be_written_back(start_server: StartServer) -> None:
    server = start_server()
    read = server.http.get(PATH).json()
    change = put(server, read["policy"], version=read["version"])
    assert (change["version"], change["policy"]) == (read["version"], read["policy"])
    assert server.http.get(PATH).json() == read


CONDITIONS: list[tuple[dict[str, str], dict[str, Any], int]] = [
    ({}, {}, 428),
    ({"If-Match": '"1"'}, {}, 200),
    ({"If-Match": "*"}, {}, 200),
    ({"If-Match": '"7" , "1"'}, {}, 200),
    ({"If-Match": '"1"'}, {"version": None}, 200),
    ({"If-Match": "*"}, {"version": 1}, 200),
    ({"If-Match": '"1", "2"'}, {"version": 1}, 200),
    ({"If-Match": '"2"'}, {}, 412),
    ({"If-Match": '"2", "3"'}, {}, 412),
    ({"If-Match": '"2"'}, {"version": None}, 412),
    ({"If-Match": '"2"'}, {"version": 2}, 412),
    ({"If-Match": "*"}, {"version": 2}, 409),
    ({"If-Match": 'W/"1"'}, {}, 412),
    ({"If-Match": '"01"'}, {}, 412),
    ({"If-Match": '"one"'}, {}, 412),
    ({"If-Match": f'"{9**99}"'}, {}, 412),
    ({"If-Match": '"2"'}, {"version": 1}, 422),
    ({"If-Match": "1"}, {}, 422),
    ({"If-Match": ""}, {}, 422),
    ({"If-Match": '"1", *'}, {}, 422),
    ({"If-None-Match": '"1"'}, {"version": 1}, 422),
    ({"If-Unmodified-Since": "x"}, {"version": 1}, 422),
]


@pytest.mark.parametrize(("headers", "fields", "status"), CONDITIONS)
def test_change_says_which_version_it_was_made_from(
    start_server: StartServer, headers: dict[str, str], fields: dict[str, Any], status: int
) -> None:
    server = start_server()
    response = server.http.put(PATH, json={"policy": leave_at(2), **fields}, headers=headers)
    assert response.status_code == status, response.text
    live = server.http.get(PATH)
    if status == 200:
        assert (live.json()["version"], live.headers["etag"]) == (2, '"2"')
        assert response.headers["etag"] == '"2"'
    else:
        assert (live.json()["version"], live.headers["etag"]) == (1, '"1"')


def test_condition_that_comes_twice_is_refused(server: LiveServer) -> None:
    twice = [("If-Match", '"1"'), ("If-Match", '"2"')]
    problem = Problem.of(server.http.put(PATH, json={"policy": leave_at(2)}, headers=twice))
    assert problem.status == 422


def test_answer_to_a_change_says_what_is_gone_and_what_became_another_wish(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server()
    limits = {"overrides": "profiles", "min_layer": 2, "max_layer": 3}
    change = put(server, {"default": NEVER, "limits": limits})
    said = "with the limits' min_layer 2 and max_layer 3, every text leaves at layer 3"
    assert change["resolved"]["default"]["problem"] == said
    assert server.http.get(PATH).json()["resolved"] == change["resolved"]
    assert f"tiny: policy 2: default: {said}" in caplog.text
    assert server.metric("offramp_policy_problems") == 1
    change = put(server, {"default": NEVER, "limits": {"min_layer": 2}})
    assert change["dropped_limits"] == ["max_layer", "overrides"]
    assert change["changes"] == {
        "limits.max_layer": [3, None],
        "limits.overrides": ["profiles", "any"],
    }
    assert "problem" not in change["resolved"]["default"]
    assert server.metric("offramp_policy_problems") == 0


def test_profiles_are_exchanged_with_the_policy(start_server: StartServer) -> None:
    server = start_server()
    kept = {"profiles": {"fast": NEVER}, "default": NEVER}
    third = {"profiles": {"third": {"rule": "layer", "layer": 3}}, "default": "third"}
    changes = [put(server, policy) for policy in (kept, kept, third, {"default": NEVER})]
    assert [change["version"] for change in changes] == [2, 2, 3, 4]
    assert [change["dropped_profiles"] for change in changes] == [
        ["balanced"], [], ["fast"], ["third"],
    ]  # fmt: skip
    assert server.layers("w1") == [DEPTH]
    assert server.refusal("w1", exit="fast").message.endswith("the policy has none")
    put(server, third)
    assert server.layers("w1") == server.layers("w1", exit="third") == [3]
    assert server.refusal("w1", exit="fast").message.endswith("the policy has third")


def test_one_model_s_policy_leaves_the_other_alone(
    start_server: StartServer, bundle_copy: Any
) -> None:
    server = start_server(bundle_copy("one"), bundle_copy("two"))
    server.put_policy(leave_at(1), "one").raise_for_status()
    assert server.layers("w1", model="one") == [1]
    assert server.layers("w1", model="two") == [DEPTH]
    assert server.answer("w1", model="two")["policy_version"] == 1


def test_every_answer_fits_the_version_it_names(start_server: StartServer) -> None:
    server = start_server()
    layer_of = {1: DEPTH}
    layers = itertools.cycle(range(1, DEPTH + 1))

    def traffic(client: int) -> list[tuple[int, list[int]]]:
        seen = []
        for _ in range(40):
            answer = server.answer(["w1", "w2 w3", "w4"][: 1 + client % 3])
            exits = [result["exit"]["layer"] for result in answer["results"]]
            seen.append((answer["policy_version"], exits))
        return seen

    with ThreadPoolExecutor(6) as pool:
        clients = [pool.submit(traffic, client) for client in range(5)]
        while not all(client.done() for client in clients):
            layer = next(layers)
            layer_of[put(server, leave_at(layer))["version"]] = layer
        for client in clients:
            for version, exits in client.result():
                assert set(exits) == {layer_of[version]}
            versions = [version for version, _ in client.result()]
            assert versions == sorted(versions)
    assert len(layer_of) > 2


POLICIES_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"x": 1}, "policy.x: unknown field"),
    ({"default": 1}, "policy.default: must be a target such as"),
    ({"default": "nope"}, "policy: no profile 'nope'; the policy has none"),
    ({"default": {"rule": "layer", "layer": 9}}, "default: layer 9 has no exit"),
    ({"default": {"rule": "never", "x": 1}}, "policy.default.x: unknown field"),
    ({"profiles": []}, "policy.profiles: must be a JSON object"),
    ({"profiles": {"a": "b"}}, "policy.profiles.a: must be a JSON object"),
    ({"profiles": {"": NEVER}}, "a name must be 1 to 64 letters"),
    ({"profiles": {"default": NEVER}}, "'default' is the name of the rule for requests without"),
    ({"profiles": {f"p{i}": NEVER for i in range(65)}}, "profiles: must have at most 64 entries"),
    ({"profiles": {"a": {"rule": "layer", "layer": 9}}}, "profiles.a: layer 9 has no exit"),
    ({"limits": {"x": 1}}, "policy.limits.x: unknown field"),
    ({"limits": {"overrides": "some"}}, "policy.limits.overrides: must be"),
    ({"limits": {"min_layer": 0}}, "policy.limits.min_layer: must be greater"),
    ({"limits": {"min_layer": 5}}, "limits: min_layer 5 is beyond"),
    ({"limits": {"min_layer": 10**4200}}, "limits: min_layer 10000"),
    ({"default": {"rule": "layer", "layer": 10**4200}}, "default: layer 10000"),
    ({"limits": {"min_layer": 3, "max_layer": 2}}, "limits: min_layer 3 is beyond max_layer 2"),
    (
        {"default": {"rule": "layer", "layer": 1}, "limits": {"min_layer": 2}},
        "default: layer 1 is outside the policy's limits",
    ),
]
REFUSED: list[tuple[Any, int, str]] = [
    ([], 422, "must be a JSON object"),
    ({}, 422, "policy: required"),
    ({**FULL_DEPTH, "x": 1}, 422, "x: unknown field"),
    ({**FULL_DEPTH, "version": 0}, 422, "version: must be greater"),
    ({**FULL_DEPTH, "version": "1"}, 422, "version: must be a valid integer"),
    ({**FULL_DEPTH, "version": 10**4200}, 422, "version: must be less than or equal to 9"),
    ({"policy": {}, "version": None}, 422, "policy: default is missing"),
    ({"policy": None, "version": None}, 422, "policy: must be a JSON object"),
    *(
        ({"policy": {"default": NEVER, **policy}, "version": None}, 422, message)
        for policy, message in POLICIES_REFUSED
    ),
]


@pytest.mark.parametrize(("body", "status", "message"), REFUSED)
def test_wrong_policy_is_refused_and_changes_nothing(
    server: LiveServer, body: Any, status: int, message: str
) -> None:
    problem = refused(server, body)
    assert problem.status == status
    assert message in problem.message
    assert len(problem.message) < 1100


@pytest.mark.parametrize(
    ("layer", "line", "error"), [(2, "policy changed", ""), (9, REFUSAL, "invalid_rule")]
)
def test_change_of_a_client_that_leaves_is_logged_and_goes_to_all_replicas(
    start_server: StartServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    layer: int,
    line: str,
    error: str,
) -> None:
    asked, left = threading.Event(), threading.Event()
    replace = LivePolicy.change

    def slow(*arguments: Any) -> Replacement:
        asked.set()
        assert left.wait(60)
        return replace(*arguments)

    monkeypatch.setattr(LivePolicy, "change", slow)
    server = start_server()
    with caplog.at_level(logging.INFO):
        with server.half_sent(put_request(leave_at(layer))):
            assert asked.wait(60)
        until(lambda: server.metric("offramp_connections") == 1)
        left.set()
        until(lambda: server.metric("offramp_requests_total", code="499") == 1)
    [noted] = [vars(record)["fields"] for record in caplog.records if record.message == line]
    assert noted.get("error", "") == error
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert server.layers("w1") == [DEPTH if error else 2]


def test_change_that_is_cut_off_before_it_was_read_leaves_a_line(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server()
    with caplog.at_level(logging.INFO):
        with server.half_sent(put_request(leave_at(2))[:-1]):
            server.answer("w1")
        until(lambda: server.metric("offramp_requests_total", code="499") == 1)
    [noted] = [vars(record)["fields"] for record in caplog.records if record.message == REFUSAL]
    assert (noted["status"], noted["error"], noted["model"]) == (499, "cancelled", "tiny")


def put_request(policy: Any) -> bytes:
    content = json.dumps({"policy": policy, "version": None}).encode()
    return raw_request(PATH, content, method="PUT")
