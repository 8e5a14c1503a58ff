"""Models and aliases that change while the server answers."""

import errno
import gc
import os
import shutil
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import unquote

import pytest

from serve.bundle.loader import MANIFEST, load_bundle, sha256_of
from serve.engine.core import EngineCore
from serve.errors import InvalidBundle
from serve.http.settings import ConnectionState
from serve.runtime.placement import build_runner
from serve.standalone import build_standalone_app
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import (
    LiveServer,
    Problem,
    config_of,
    listening,
    serving_bundles,
)
from tests.serve.support.server_process import asking
from tests.serve.support.spoken import CONTENTS, OIP, SPEAK, VLLM, naming
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.patience import until

CHANGE = {"default": {"rule": "layer", "layer": 2}}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a folder with the bundles `first` and `second`, of different labels."""
    folder = tmp_path / "repository"
    for name in ("first", "second"):
        write_task_bundle(folder, Kind("single_label"), name)
    relabel(folder / "second", "a", "b", "c")
    return folder


def relabel(folder: Path, *labels: str) -> None:
    rewrite_manifest(folder, lambda manifest: manifest.update(labels=labels))


@pytest.fixture
def server(repository: Path) -> Iterator[LiveServer]:
    """Return a server of `first` that may load all of the repository."""
    with serving_bundles(repository / "first", model_repository=repository) as live:
        yield live


def change(server: LiveServer, method: str, path: str, **body: Any) -> dict[str, Any]:
    given = {"json": body} if body else {}
    response = server.http.request(method, path, **given)
    assert response.status_code == 200, response.text
    changed: dict[str, Any] = response.json()
    assert [ack["replica"] for ack in changed["replicas"]] == ["local"]
    return changed


def load(server: LiveServer, model: str, **body: Any) -> dict[str, Any]:
    return change(server, "POST", f"/v1/models/{model}/load", **{"force": True, **body})


def unload(server: LiveServer, model: str) -> dict[str, Any]:
    return change(server, "POST", f"/v1/models/{model}/unload")


def alias(server: LiveServer, name: str, model: str, **body: Any) -> dict[str, Any]:
    return change(server, "PUT", f"/v1/aliases/{name}", **{"model": model, "force": True, **body})


def label(server: LiveServer, **fields: Any) -> str:
    return str(server.answer("w1", **fields)["results"][0]["label"])


def test_model_is_known_in_every_place_from_its_loading_to_its_unloading(
    server: LiveServer,
) -> None:
    def statuses() -> list[int]:
        asked = (
            server.classify("w1", model="second"),
            server.http.post("/v1/models/second:predict", json={"instances": ["w1"]}),
            server.http.get("/v1/models/second"),
        )
        return [each.status_code for each in asked]

    assert statuses() == [404] * 3
    assert load(server, "second")["models"] == {"first": "first", "second": "second"}
    assert statuses() == [200] * 3
    assert server.http.get("/health/ready").status_code == 200
    listed = server.http.get("/v1/models").json()
    assert [card["id"] for card in listed["data"]] == ["first", "second"]
    loaded = [(each["name"], each["loaded"]) for each in listed["repository"]]
    assert loaded == [("first", True), ("second", True)]
    assert server.put_policy(CHANGE, "second").status_code == 200
    assert server.http.get("/v2/models/second/ready").json()["ready"]
    assert server.metric("offramp_engine_up", model="second") == 1
    assert server.metric("offramp_exits_total", model="second") == 2
    assert unload(server, "second")["models"] == {"first": "first"}
    assert statuses() == [404] * 3
    assert server.metric("offramp_engine_up", model="second") == 0
    assert server.answer("w1")["model"] == "first"  # the only one again


def test_all_models_may_be_unloaded_and_loaded_again(server: LiveServer) -> None:
    unload(server, "first")
    assert server.refusal("w1") == (404, "unknown_model", "no model is served; load one")
    assert server.http.get("/health/ready").status_code == 200
    load(server, "first")
    assert label(server)


def test_another_bundle_takes_the_place_of_a_models_own(server: LiveServer) -> None:
    before = server.http.get("/v1/models/first").json()["bundle"]
    changed = load(server, "first", bundle="second", reason="better")
    assert changed["models"] == {"first": "second"}
    assert label(server, model="first") in "abc"
    described = server.http.get("/v1/models/first").json()
    assert described["bundle"] != before
    assert described["labels"] == ["a", "b", "c"]
    [newest, *_] = server.http.get("/v1/aliases").json()["history"]
    assert newest.pop("at")
    assert (newest.pop("from_sha256"), newest.pop("sha256")) == (before, described["bundle"])
    assert newest == {
        "by": "anonymous",
        "action": "load",
        "model": "first",
        "from": "first",
        "bundle": "second",
        "why": "better",
    }
    load(server, "first", bundle="first")
    assert server.http.get("/v1/models/first").json()["bundle"] == before


def test_bundle_is_read_anew_where_its_files_have_changed(
    server: LiveServer, repository: Path
) -> None:
    relabel(repository / "first", "x", "y", "z")
    assert label(server) not in "xyz"
    load(server, "first")
    assert label(server) in "xyz"


def damage(folder: Path) -> None:
    weights = folder / "segments" / "fp32" / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:-8] + bytes(8))


def test_bundle_that_is_served_is_verified_where_it_is_loaded_again(
    server: LiveServer, repository: Path
) -> None:
    replaced = shutil.copytree(repository / "first", repository / "damaged")
    damage(replaced)
    (repository / "first").rename(repository / "away")  # the server goes on with these files
    replaced.rename(repository / "first")
    for path in ("/v1/models/first/load", "/v2/repository/models/first/load"):
        answer = server.http.post(path)
        assert answer.status_code == 422
        assert "first: segments/fp32/weights.bin is damaged" in answer.text
    assert label(server)


def test_body_of_a_change_is_read_or_refused_but_never_passed_over(server: LiveServer) -> None:
    def post(content: bytes | Iterator[bytes], **headers: str) -> int:
        path = "/v1/models/first/load"
        return server.http.post(path, content=content, headers=headers).status_code

    json = {"Content-Type": "application/json"}
    assert post(b"") == 200
    assert post(b"", **json) == 200
    assert post(iter([b'{"bundle": "none"}']), **json) == 404
    for body in (b'{"bundle": "none"}', iter([b'{"bundle": "none"}'])):
        assert post(body) == 415


def break_policy(folder: Path) -> None:
    policy = {"default": {"rule": "layer", "layer": 3}}
    rewrite_manifest(folder, lambda manifest: manifest.update(policy=policy))


def take_precision(folder: Path) -> None:
    shutil.rmtree(folder / "segments" / "fp32")


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (damage, "second: segments/fp32/weights.bin is damaged"),
        (break_policy, "layer 3 has no exit"),
        (take_precision, "is missing"),
    ],
)
def test_bundle_that_cannot_be_served_changes_nothing(
    server: LiveServer, repository: Path, harm: Callable[[Path], None], why: str
) -> None:
    harm(repository / "second")
    before = [server.http.get(path).json() for path in ("/v1/aliases", "/v2/models/first")]
    for path in ("/v1/models/second/load", "/v1/models/first/load"):
        problem = Problem.of(server.http.post(path, json={"bundle": "second"}))
        assert problem[:2] == (422, "load_failed")
        assert why in problem.message
        assert str(repository) not in problem.message
    assert [server.http.get(p).json() for p in ("/v1/aliases", "/v2/models/first")] == before
    assert label(server, model="first") not in "abc"
    assert server.metric("offramp_engine_up") == 1


def test_model_that_finds_too_little_memory_is_not_loaded(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.assembly.available_bytes", lambda: 1 << 20)
    problem = Problem.of(server.http.post("/v1/models/second/load"))
    assert problem[:2] == (422, "load_failed")
    assert "MiB while it is loaded, and 1 MiB are free; unload another model" in problem.message


NAMES = ["../repository/second", "second/../second", ".", "..", "/etc", "no", "link", ""]


@pytest.mark.parametrize("bundle", NAMES)
def test_only_bundles_of_the_repository_are_loaded(
    server: LiveServer, repository: Path, tmp_path: Path, bundle: str
) -> None:
    shutil.copytree(repository / "second", tmp_path / "outside")
    (repository / "link").symlink_to(tmp_path / "outside")
    problem = Problem.of(server.http.post("/v1/models/new/load", json={"bundle": bundle}))
    assert problem.status == (404 if bundle else 422)
    assert "first, second" in problem.message or not bundle


def test_link_that_has_come_to_lead_to_itself_changes_nothing(repository: Path) -> None:
    (link := repository / "link").symlink_to("first")
    with serving_bundles(link) as server:
        link.unlink()
        link.symlink_to("link")
        problem = Problem.of(server.http.post("/v1/models/link/load"))
        assert problem[:2] == (422, "load_failed")
        assert [each["name"] for each in models_of(server)] == ["link"]
        assert label(server)
    with pytest.raises(InvalidBundle):
        load_bundle(link)


def test_what_a_repository_has_beside_bundles_is_passed_over(
    server: LiveServer, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "loop").symlink_to("loop")
    shutil.copytree(repository / "second", repository / os.fsdecode(b"latin \xe9"))
    (repository / "lost+found").mkdir()
    is_file = Path.is_file

    def barred(path: Path) -> bool:
        if path.parent.name == "lost+found":  # the tests may run as root, who may read all
            raise PermissionError(errno.EACCES, "Permission denied")
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", barred)
    listed = server.http.get("/v1/models")
    assert listed.status_code == 200, listed.text
    assert [each["name"] for each in listed.json()["repository"]] == ["first", "second"]
    assert server.http.post("/v2/repository/index").status_code == 200
    load(server, "second")


def test_bundle_that_is_given_by_a_link_has_the_name_of_the_link(
    repository: Path, tmp_path: Path
) -> None:
    current = tmp_path / "current"
    current.symlink_to(repository / "first")
    with serving_bundles(current) as server:
        assert server.answer("w1")["model"] == "current"
        current.unlink()
        current.symlink_to(repository / "second")
        load(server, "current")  # reads what the link leads to now
        assert label(server) in "abc"
        unload(server, "current")
        [listed] = server.http.get("/v1/models").json()["repository"]
        assert (listed["name"], listed["loaded"]) == ("current", False)
        load(server, "current")


def test_link_inside_a_repository_is_a_bundle_of_its_own_name(
    server: LiveServer, repository: Path
) -> None:
    shutil.copytree(repository / "second", repository / "releases" / "2026-11-01")
    (repository / "current").symlink_to("releases/2026-11-01")
    assert load(server, "current")["models"]["current"] == "current"
    listed = server.http.get("/v1/models").json()["repository"]
    assert [each["name"] for each in listed if each["loaded"]] == ["current", "first"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/models/first/load", {"bundle": "second"}),
        ("PUT", "/v1/aliases/default", {"model": "second"}),
    ],
)
def test_name_comes_to_stand_for_other_labels_by_force_alone(
    server: LiveServer, method: str, path: str, body: dict[str, Any]
) -> None:
    pins = {each["name"]: each["bundle"] for each in load(server, "second") and models_of(server)}
    problem = Problem.of(server.http.request(method, path, json=body))
    assert problem[:2] == (422, "invalid_request")
    assert "a, b, c" in problem.message
    assert "a" not in label(server)
    made = change(server, method, path, **body, force=True)["change"]
    assert (made["from_sha256"], made["sha256"]) == (pins["first"], pins["second"])


def models_of(server: LiveServer) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = server.http.get("/v1/models").json()["models"]
    return listed


@pytest.mark.parametrize("name", [MANIFEST, "segments/fp32/weights.bin"])
def test_huge_file_is_not_read(server: LiveServer, repository: Path, name: str) -> None:
    with (repository / "second" / name).open("r+b") as file:
        file.truncate(300 << 30)  # sparse: it takes no room
    problem = Problem.of(server.http.post("/v1/models/second/load"))
    assert problem[:2] == (422, "load_failed")
    assert alias(server, "mood", "first")["aliases"]["mood"] == "first"


def test_load_that_a_stop_cuts_off_may_be_tried_elsewhere(repository: Path) -> None:
    config = config_of(repository / "first", model_repository=str(repository))
    state = ConnectionState()
    with listening(build_standalone_app(config, state), config.connections, state) as server:
        state.stopping = True
        problem = Problem.of(server.http.post("/v1/models/second/load"))
    assert problem[:2] == (503, "unavailable")


def test_without_a_repository_the_bundles_of_the_start_come_and_go(repository: Path) -> None:
    with serving_bundles(repository / "first", repository / "second") as server:
        unload(server, "second")
        load(server, "second")
        problem = Problem.of(server.http.post("/v1/models/third/load"))
        assert problem[:2] == (403, "forbidden")
        assert "--model-repository FOLDER" in problem.message


@pytest.mark.parametrize("name", ["a b", "ä", ".hidden", "x" * 129, "a%0Ab"])
def test_name_that_paths_and_files_cannot_bear_is_refused(
    server: LiveServer, repository: Path, name: str
) -> None:
    shutil.copytree(repository / "second", repository / unquote(name))
    for body in ({"bundle": "second"}, {"bundle": unquote(name)}, {}):
        problem = Problem.of(server.http.post(f"/v1/models/{name}/load", json=body))
        assert problem == (422, "invalid_request", problem.message)
    answer = server.http.post(f"/v2/repository/models/{name}/load")
    assert "must be 1 to 128 letters" in answer.text
    problem = Problem.of(server.http.put(f"/v1/aliases/{name}", json={"model": "first"}))
    assert "must be 1 to 128 letters" in problem.message


def test_alias_stands_for_a_model_in_every_dialect(server: LiveServer) -> None:
    load(server, "second")
    assert alias(server, "mood", "second")["aliases"] == {"default": "first", "mood": "second"}
    assert server.answer("w1", model="mood")["model"] == "second"
    post, get, flag = server.http.post, server.http.get, {"flag": {"a": 0.0}}
    by_header = {"contents": ["w1"], "detector_params": flag}
    by_field = SPEAK[OIP]({}, "w1") | {"model_name": "mood"}
    asked = [
        *(post(path, json=body) for path, body in naming("mood", flag)),
        post("/models/mood/tokenize", json={"inputs": "w1"}),
        post("/v2/models/mood/infer", json=by_field),
        post(CONTENTS, json=by_header, headers={"detector-id": "mood"}),
        *(get(f"/v1/models/mood{tail}") for tail in ("", "/policy")),
        get("/v2/models/mood"),
        get("/models/mood/info"),
        server.put_policy(CHANGE, "mood"),
    ]
    assert [each.status_code for each in asked] == [200] * len(asked), [a.text for a in asked]
    assert post(VLLM, json={"model": "mood", "input": "w1"}).json()["model"] == "second"
    assert get("/v1/models/second/policy").json()["policy"]["default"]["layer"] == 2


def test_moved_alias_is_moved_back_by_the_same_call(server: LiveServer) -> None:
    load(server, "second")
    for model in ("first", "second", "first"):
        alias(server, "mood", model, reason="blue")
        assert server.answer("w1", model="mood")["model"] == model
    found = server.http.get("/v1/aliases").json()
    mood = found["aliases"]["mood"]
    assert (mood["model"], mood["by"], mood["why"]) == ("first", "anonymous", "blue")
    moved = [(each.get("from"), each.get("model")) for each in found["history"][:3]]
    assert moved == [("second", "first"), ("first", "second"), (None, "first")]
    removed = change(server, "DELETE", "/v1/aliases/mood", reason="grey")
    assert removed["aliases"] == {"default": "first"}
    assert server.http.get("/v1/aliases").json()["history"][0]["why"] == "grey"
    assert server.refusal("w1", model="mood").code == "unknown_model"


def test_requests_without_a_model_go_to_the_default_alias(server: LiveServer) -> None:
    load(server, "second")
    assert server.answer("w1")["model"] == "first"  # as before there were two
    alias(server, "default", "second")
    assert server.answer("w1")["model"] == "second"
    assert server.http.post("/predict", json={"inputs": "w1"}).status_code == 200
    assert server.http.get("/info").json()["model_id"] == "second"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("PUT", "/v1/aliases/first", {"model": "second"}, 422, "is the name of a model"),
        ("PUT", "/v1/aliases/x", {"model": "nope"}, 404, "served are first, second"),
        ("PUT", "/v1/aliases/x", {"model": "mood"}, 404, "served are first, second"),
        ("DELETE", "/v1/aliases/x", None, 404, "no alias 'x'; there are default, mood"),
        ("POST", "/v1/models/mood/load", {"bundle": "first"}, 422, "is an alias of second"),
        ("POST", "/v1/models/mood/unload", None, 422, "is an alias; unload second"),
        ("POST", "/v1/models/second/unload", None, 422, "move or remove them first"),
        ("POST", "/v1/models/nope/unload", None, 404, "served are first, second"),
    ],
)
def test_change_that_names_would_contradict_is_refused(
    server: LiveServer, method: str, path: str, body: Any, status: int, message: str
) -> None:
    load(server, "second")
    alias(server, "mood", "second")
    given = {"json": body} if body else {}
    problem = Problem.of(server.http.request(method, path, **given))
    assert problem.status == status
    assert message in problem.message


def test_request_that_has_begun_is_answered_by_the_model_that_it_found(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, step = Event(), Event(), EngineCore.step
    cores: list[EngineCore] = []

    def waiting_step(core: EngineCore) -> Any:
        cores.append(core)
        if core is cores[0] and not go_on.is_set():
            begun.set()
            assert go_on.wait(60)
        return step(core)

    other = LiveServer(server.port)
    with ThreadPoolExecutor(1) as pool, other.http:
        monkeypatch.setattr(EngineCore, "step", waiting_step)
        waiting = pool.submit(server.answer, "w1 w2", model="first")
        assert begun.wait(60)
        changed = load(other, "first", bundle="second")
        assert changed["models"] == {"first": "second"}
        go_on.set()
        answered = waiting.result()
    assert answered["results"][0]["label"] not in "abc"
    assert label(server, model="first") in "abc"


def test_memory_of_a_model_comes_back_without_the_garbage_collector(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Any] = []

    def build(*args: Any) -> Any:
        runner = build_runner(*args)
        loaded.append(weakref.ref(runner))
        return runner

    monkeypatch.setattr("serve.classifier.classifier.build_runner", build)
    load(server, "second")
    [runner] = loaded
    assert label(server, model="second")
    gc.disable()
    try:
        unload(server, "second")
        until(lambda: runner() is None)
    finally:
        gc.enable()


def test_no_request_fails_while_models_come_and_go(repository: Path, server: LiveServer) -> None:
    (repository / "damaged").mkdir()
    (repository / "damaged" / "manifest.json").write_text("{}")
    with asking(server) as outcomes:
        for _ in range(3):
            load(server, "second")
            alias(server, "default", "second")
            load(server, "first", bundle="second")
            alias(server, "default", "first")
            unload(server, "second")
            load(server, "first", bundle="first")
            assert server.http.post("/v1/models/damaged/load").status_code == 422
    assert outcomes.keys() == {"200 application/json"}
    assert sum(outcomes.values()) > 20


def test_models_and_aliases_survive_a_restart_with_the_same_bundles(
    repository: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    pins = {"first": sha256_of(repository / "first" / MANIFEST)}

    def serving(**others: Any) -> Any:
        kept = {"state": state, "model_repository": repository, "bundle_sha256": pins}
        return serving_bundles(repository / "first", **kept, **others)

    with serving() as server:
        load(server, "green", bundle="second")
        alias(server, "default", "green", reason="better")
        unload(server, "first")
        assert server.put_policy(CHANGE, "green").status_code == 200
        before = server.http.get("/v1/aliases").json()
    with serving() as server:
        assert server.http.get("/v1/aliases").json() == before
        answer = server.answer("w1")
        assert (answer["model"], answer["policy_version"]) == ("green", 2)
    relabel(repository / "first", "x", "y", "z")
    pins = {"first": sha256_of(repository / "first" / MANIFEST)}
    with serving() as server:  # another bundle on the command line: the set starts anew from it
        assert label(server) in "xyz"
        assert server.http.get("/v1/aliases").json()["aliases"] == {}


def test_restart_without_the_bundle_of_a_loaded_model_says_what_to_do(
    repository: Path, tmp_path: Path
) -> None:
    pins = {"first": sha256_of(repository / "first" / MANIFEST)}
    kept = {"state": tmp_path, "model_repository": repository, "bundle_sha256": pins}
    with serving_bundles(repository / "first", **kept) as server:
        load(server, "green", bundle="second")
    relabel(repository / "second", "x", "y", "z")
    for harm in (lambda: None, partial(shutil.rmtree, repository / "second")):
        harm()
        with (
            pytest.raises(InvalidBundle),
            serving_bundles(repository / "first", **kept),
        ):
            pass


def test_bound_key_asks_a_model_by_any_of_its_names_and_no_other(
    repository: Path, tmp_path: Path
) -> None:
    secrets = {"ops": make_key(tmp_path, "admin")} | {
        name: make_key(tmp_path, "classify", name=name, models=[model])
        for name, model in (("by-alias", "mood"), ("by-name", "second"))
    }

    def asked(key: str, **fields: Any) -> int | str:
        headers = {"X-API-Key": secrets[key]}
        answer = server.http.post("/v1/classify", json={"inputs": "w1", **fields}, headers=headers)
        return str(answer.json()["model"]) if answer.status_code == 200 else answer.status_code

    folders = repository / "first", repository / "second"
    with serving_bundles(*folders, keys=tmp_path / "keys.json") as server:
        server.http.headers["X-API-Key"] = secrets["ops"]
        assert asked("by-alias", model="mood") == 404
        for model, other in (("first", "second"), ("second", "first")):
            alias(server, "mood", model)
            assert [asked("by-alias", **f) for f in ({}, {"model": "mood"})] == [model] * 2
            assert [asked("by-alias", model=m) for m in (model, other)] == [model, 403]
        assert [asked("by-name", model=m) for m in ("second", "mood")] == ["second"] * 2
        assert asked("by-name") == "second"
        alias(server, "mood", "first")
        assert [asked("by-name", model=m) for m in ("second", "mood")] == ["second", 403]
        for method, path in (
            ("POST", "/v1/models/first/unload"),
            ("PUT", "/v1/aliases/x"),
            ("DELETE", "/v1/aliases/mood"),
            ("GET", "/v1/aliases"),
            ("POST", "/v2/repository/models/first/unload"),
        ):
            headers = {"X-API-Key": secrets["by-name"]}
            assert server.http.request(method, path, headers=headers).status_code == 403, path


def test_stream_of_a_policys_events_ends_with_its_model(server: LiveServer) -> None:
    load(server, "second")
    with server.http.stream("GET", "/v1/models/second/policy/events") as stream:
        lines = stream.iter_lines()
        assert next(lines)
        other = LiveServer(server.port)
        with other.http:
            unload(other, "second")
        assert list(lines)  # to its end
