import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from serve.policy.entry import MAX_WHY_CHARS
from serve.policy.store import KEPT_VERSIONS
from tests.serve.api.conftest import StartServer
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, Problem, serving_bundles
from tests.support.tiny import POLICY

PATH = "/v1/models/tiny/policy"
HISTORY, ROLLBACK = f"{PATH}/history", f"{PATH}/rollback"
MERGE_PATCH = "application/merge-patch+json"


def ask(server: LiveServer, method: str, path: str = PATH, **body: Any) -> Any:
    response = server.http.request(method, path, json=body or None)
    assert response.status_code == 200, response.text
    return response.json()


def refused(server: LiveServer, method: str, path: str = PATH, **body: Any) -> Problem:
    before = server.http.get(HISTORY).json()
    content, headers = json.dumps(body), {"Content-Type": "application/json"}
    problem = Problem.of(server.http.request(method, path, content=content, headers=headers))
    assert server.http.get(HISTORY).json() == before
    return problem


def leave_at(layer: int) -> dict[str, Any]:
    return {"default": {"rule": "layer", "layer": layer}}


def test_path_of_a_webhook_is_for_those_who_may_change_it_and_in_no_log(
    bundle_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    admin, read = (
        {"Authorization": f"Bearer {make_key(tmp_path, scope)}"} for scope in ("admin", "read")
    )
    url = "https://alerts.example.com/services/secret"
    policy = {**leave_at(2), "guard": {"webhook": url}}
    start = {"policy": policy, "bounds": {"layers": 3}}

    def seen(path: str, headers: dict[str, str]) -> Any:
        return server.http.get(path, headers=headers).json()

    with (
        caplog.at_level(logging.INFO),
        serving_bundles(bundle_folder, keys=tmp_path / "keys.json") as server,
    ):
        for method, path, body, status in (
            ("PUT", PATH, {"policy": policy, "version": 1}, 200),
            ("PUT", PATH, {"policy": policy, "version": 1}, 409),
            ("PATCH", PATH, {"patch": {"guard": {"webhook": f"{url}\t"}}, "version": 2}, 422),
            ("POST", f"{PATH}/rollout", start, 200),
        ):
            answer = server.http.request(method, path, json=body, headers=admin)
            assert answer.status_code == status, answer.text
        assert seen(PATH, admin)["policy"]["guard"]["webhook"] == url
        public = "https://alerts.example.com/..."
        assert seen(PATH, read)["policy"]["guard"]["webhook"] == public
        assert seen(f"{PATH}/rollout", read)["candidate"]["guard"]["webhook"] == public
        assert "secret" not in server.http.get("/v1/models", headers=read).text
    lines = [str(vars(record).get("fields")) for record in caplog.records]
    assert any(public in line for line in lines)
    assert not any("services/secret" in line for line in lines)


def test_history_says_who_has_changed_what_and_why(start_server: StartServer) -> None:
    server = start_server()
    ask(server, "PUT", policy={**leave_at(2), "profiles": {"a": {"rule": "never"}}}, version=1)
    ask(server, "PATCH", patch={"default": {"layer": 3}}, version=2, why="texts got harder")
    ask(server, "POST", ROLLBACK, to=1, why="Übung")
    shown = ask(server, "GET", HISTORY)
    entries = shown["entries"]
    assert shown["model"] == "tiny"
    assert [
        (each["version"], each["by"], each["action"], each["source"], each.get("why"))
        for each in entries
    ] == [
        (4, "anonymous", "rollback", "api", "Übung"),
        (3, "anonymous", "patch", "api", "texts got harder"),
        (2, "anonymous", "put", "api", None),
        (1, "bundle", "baseline", "bundle", None),
    ]
    times = [each["at"] for each in entries]
    assert times == sorted(times, reverse=True)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time) for time in times)
    assert entries[1]["changes"] == {"default.layer": [2, 3]}
    assert entries[2]["changes"]["profiles.a"] == [None, {"rule": "never"}]
    assert ask(server, "GET", f"{HISTORY}?limit=2")["entries"] == entries[:2]
    third = ask(server, "GET", f"{HISTORY}/3")
    policy = third.pop("policy")
    assert policy["default"] == {"rule": "layer", "layer": 3}
    assert third == {"model": "tiny", **entries[1]}
    live = ask(server, "GET")
    assert live["policy"] == ask(server, "GET", f"{HISTORY}/1")["policy"]
    assert {name: live[name] for name in ("version", "at", "by", "why", "action")} == {
        name: entries[0][name] for name in ("version", "at", "by", "why", "action")
    }


def test_rollback_answers_as_the_put_of_that_version(start_server: StartServer) -> None:
    server = start_server()
    put = ask(server, "PUT", policy=leave_at(2), version=None)
    ask(server, "PUT", policy=leave_at(3), version=None)
    back = ask(server, "POST", ROLLBACK, to=2)
    for answer in (put, back):
        del answer["at"], answer["changes"]
    changed = {"version": 4, "action": "rollback", "dropped_profiles": []}
    assert back == {**put, **changed, "replicas": [{"replica": "local", "version": 4}]}
    answer = server.answer("w1")
    assert (answer["policy_version"], answer["results"][0]["exit"]["layer"]) == (4, 2)


# Live document, patch, what comes out: the rules of RFC 7396 on policies.
PATCHES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({}, {}, {}),
    ({}, {"default": {"layer": 4}}, leave_at(4)),
    (
        {"profiles": {"a": {"rule": "never"}, "b": {"rule": "never"}}},
        {"profiles": {"a": None, "c": {"rule": "layer", "layer": 1}, "none": None}},
        {"profiles": {"b": {"rule": "never"}, "c": {"rule": "layer", "layer": 1}}},
    ),
    (
        {"profiles": {"a": {"rule": "entropy", "threshold": 0.5}}},
        {"profiles": {"a": {"rule": None, "threshold": None, "target": {"max_layers": 3}}}},
        {"profiles": {"a": {"target": {"max_layers": 3}}}},
    ),
    ({"profiles": {"a": {"rule": "never"}}}, {"profiles": None}, {"profiles": {}}),
    ({"profiles": {"a": {"rule": "never"}}}, {"default": "a"}, {"default": "a"}),
    ({"limits": {"max_layer": 3}}, {"limits": {"max_layer": None}}, {"limits": {}}),
]


@pytest.mark.parametrize(("fields", "patch", "expected"), PATCHES)
def test_patch_merges_into_the_live_policy(
    start_server: StartServer, fields: Any, patch: Any, expected: Any
) -> None:
    server = start_server()
    ask(server, "PUT", policy={**leave_at(2), **fields}, version=1)
    patched = ask(server, "PATCH", patch=patch, version=2)["policy"]
    ask(server, "PUT", policy={**leave_at(2), **fields, **expected}, version=None)
    assert patched == ask(server, "GET")["policy"]


def test_patch_may_say_that_it_is_a_merge_patch(start_server: StartServer) -> None:
    server = start_server()
    headers = {"Content-Type": MERGE_PATCH, "If-Match": '"1"'}
    body = b'{"patch": {"default": {"rule": "layer", "layer": 2}}}'
    patched = server.http.patch(PATH, content=body, headers=headers)
    assert (patched.status_code, patched.headers["etag"]) == (200, '"2"')
    for method, path in (("PUT", PATH), ("POST", ROLLBACK)):
        problem = Problem.of(server.http.request(method, path, content=body, headers=headers))
        assert problem.status == 415


def deep(levels: int) -> Any:
    nested: Any = 1
    for level in range(levels):
        nested = [nested] if level % 2 else {"a": nested}
    return nested


REFUSED: list[tuple[str, str, dict[str, Any], int]] = [
    ("PATCH", PATH, {"version": 1}, 422),
    ("PATCH", PATH, {"patch": {}}, 428),
    ("PATCH", PATH, {"patch": {}, "version": 9}, 409),
    ("PATCH", PATH, {"patch": {"x": 1}, "version": 1}, 422),
    ("PATCH", PATH, {"patch": [], "version": 1}, 422),
    ("PATCH", PATH, {"patch": {"default": None}, "version": 1}, 422),
    ("PATCH", PATH, {"patch": {"default": "no"}, "version": 1}, 422),
    ("PATCH", PATH, {"patch": {"default": {"rule": "layer", "layer": 9}}, "version": 1}, 422),
    ("PATCH", PATH, {"patch": {"a": deep(16)}, "version": 1}, 422),
    ("PATCH", PATH, {"patch": {"a": deep(900)}, "version": 1}, 422),
    ("PATCH", PATH, {"patch": {}, "version": 1, "x": 1}, 422),
    ("PATCH", PATH, {"patch": {}, "version": 1, "why": "x" * 501}, 422),
    ("PATCH", PATH, {"patch": {}, "version": 1, "why": "\x1b[2J"}, 422),
    ("PUT", PATH, {"policy": leave_at(2), "version": 1, "why": "a\nb"}, 422),
    ("PUT", PATH, {"policy": leave_at(2), "version": 1, "why": "\ud800"}, 422),
    ("PUT", PATH, {"policy": leave_at(2), "version": 1, "why": 1}, 422),
    ("PATCH", PATH, {"patch": {"\ud800": "\ud800"}, "version": 1}, 422),
    ("POST", ROLLBACK, {"why": "x"}, 422),
    ("POST", ROLLBACK, {"to": 0}, 422),
    ("POST", ROLLBACK, {"to": 10**30}, 422),
    ("POST", ROLLBACK, {"to": 7}, 404),
    ("POST", ROLLBACK, {"to": 1, "version": 3}, 409),
    ("POST", ROLLBACK, {"to": 1, "why": "a\u2028b"}, 422),
    ("POST", ROLLBACK, {"to": 1, "why": "turned \u202e round"}, 422),
    ("POST", ROLLBACK, {"to": 1, "why": "unseen \U000e0041"}, 422),
    ("POST", ROLLBACK.replace("tiny", "nope"), {"to": 1}, 404),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status"), REFUSED)
def test_wrong_change_is_refused_and_leaves_no_version(
    server: LiveServer, method: str, path: str, body: Any, status: int
) -> None:
    assert refused(server, method, path, **body).status == status


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((f"{HISTORY}?limit={limit}", 422) for limit in ("0", "1001", "x")),
        *((f"{HISTORY}/{version}", 422) for version in ("0", "x")),
        (f"{HISTORY}/9", 404),
        (HISTORY.replace("tiny", "nope"), 404),
        (f"{HISTORY.replace('tiny', 'nope')}/1", 404),
    ],
)
def test_history_that_is_not_there_is_refused(server: LiveServer, path: str, status: int) -> None:
    assert server.http.get(path).status_code == status


def test_of_clients_that_patch_and_roll_back_a_version_at_once_one_succeeds(
    start_server: StartServer,
) -> None:
    server = start_server()
    for version in range(1, 6):

        def change(client: int, version: int = version) -> int:
            patch = {"default": {"rule": "entropy", "threshold": version / 10}}
            patched = ("PATCH", PATH, {"patch": patch, "version": version})
            rolled = ("POST", ROLLBACK, {"to": 1, "version": version})
            method, path, body = rolled if client % 2 else patched
            return server.http.request(method, path, json=body).status_code

        with ThreadPoolExecutor(4) as pool:
            codes = sorted(pool.map(change, range(4)))
        assert codes == [200, 409, 409, 409]
    entries = ask(server, "GET", HISTORY)["entries"]
    assert [entry["version"] for entry in entries] == [6, 5, 4, 3, 2, 1]


def test_patches_of_any_version_are_all_kept(start_server: StartServer) -> None:
    server = start_server()

    def patch(client: int) -> None:
        profile = {"rule": "layer", "layer": 1}
        ask(server, "PATCH", patch={"profiles": {f"p{client}": profile}}, version=None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(patch, range(8)))
    assert {f"p{client}" for client in range(8)} <= ask(server, "GET")["policy"]["profiles"].keys()


def test_old_versions_go_and_rollback_says_which_are_left(start_server: StartServer) -> None:
    server = start_server()
    for version in range(1, KEPT_VERSIONS + 3):
        ask(server, "PUT", policy=leave_at(1 + version % 2), version=version)
    problem = refused(server, "POST", ROLLBACK, to=2)
    assert problem[:2] == (404, "unknown_version")
    assert problem.message.endswith(f"kept are 1, 4 to {KEPT_VERSIONS + 3}")
    *_, oldest, baseline = ask(server, "GET", f"{HISTORY}?limit=1000")["entries"]
    assert (oldest["version"], "changes" in oldest) == (4, False)
    assert baseline == {**baseline, "version": 1, "action": "baseline", "changes": {}}
    assert ask(server, "POST", ROLLBACK, to=1)["policy"] == POLICY.model_dump(exclude_none=True)


def test_trail_says_by_whom_and_why(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server, why = start_server(), "x" * MAX_WHY_CHARS
    with caplog.at_level(logging.INFO):
        ask(server, "PATCH", patch={"default": {"rule": "layer", "layer": 2}}, version=1, why=why)
        refused(server, "POST", ROLLBACK, to=9)
        refused(server, "PATCH", patch={"default": "no"}, version=2)
    lines = [vars(record)["fields"] for record in caplog.records if "trail" in record.name]
    made, rolled, patched = lines
    assert (made["by"], made["action"], made["why"]) == ("anonymous", "patch", why)
    assert made["changes"] == {"default.rule": ("never", "layer"), "default.layer": (None, 2)}
    assert (rolled["error"], rolled["to"], rolled["live_version"]) == ("unknown_version", 9, 2)
    assert patched["changes"] == {"default": ({"rule": "layer", "layer": 2}, "no")}
