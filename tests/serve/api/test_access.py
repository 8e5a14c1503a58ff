"""Keys, scopes, limits and hosts over HTTP; the server knows two keys."""

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve.access.gate import Client
from serve.access.keys import Scope
from serve.api.access import LOOPBACK_HOSTS, Access
from serve.api.request import Headers, Request
from serve.engine.engine import Engine
from serve.engine.row import Row
from serve.errors import WrongHost
from serve.logs import ACCESS_LOG
from serve.standalone import build_standalone_app
from serve.version import __version__
from tests.serve.api.conftest import StartServer
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import (
    FULL_DEPTH,
    LiveServer,
    Problem,
    config_of,
    serving_bundles,
)
from tests.support.patience import until

POLICY = "/v1/models/tiny/policy"
ASK = {"inputs": "w1"}
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"

KINDS: dict[str, tuple[Scope, dict[str, Any]]] = {
    "user": ("classify", {"rows_per_s": 100}),
    "slow": ("classify", {"rows_per_s": 1, "in_flight": 1, "max_text_chars": 20}),
    "viewer": ("read", {}),
    "ops": ("admin", {"priority": "high"}),
    "batch": ("classify", {"priority": "low"}),
}


class Keys:
    """A file of keys and their secrets by name."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.json"
        self.secrets = {
            name: make_key(folder, scope, name=name, **more)
            for name, (scope, more) in KINDS.items()
        }

    def __getitem__(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secrets[name]}"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def guarded(bundle_folder: Path, keys: Keys) -> Iterator[LiveServer]:
    with serving_bundles(
        bundle_folder,
        keys=keys.file,
        allowed_hosts=[*LOOPBACK_HOSTS, "*.example.com"],
        cors_origins=["https://app.example.com"],
        access_log=True,
    ) as server:
        yield server


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/classify", {"user", "slow", "ops", "batch"}),
        ("GET", "/v1/models", {"viewer", "ops"}),
        ("GET", "/v1/models/tiny", {"viewer", "ops"}),
        ("GET", POLICY, {"viewer", "ops"}),
        ("GET", "/metrics", {"viewer", "ops"}),
        ("PUT", POLICY, {"ops"}),
        ("GET", f"{POLICY}/history", {"ops"}),
        ("GET", f"{POLICY}/rollout", {"viewer", "ops"}),
        ("POST", f"{POLICY}/rollout", {"ops"}),
        ("POST", f"{POLICY}/rollout/abort", {"ops"}),
        ("GET", "/no/such/route", {"user", "slow", "viewer", "ops", "batch"}),
        ("POST", "/no/such/route", {"user", "slow", "viewer", "ops", "batch"}),
        ("DELETE", "/v1/models/tiny", {"user", "slow", "viewer", "ops", "batch"}),
    ],
)
def test_each_route_admits_the_keys_of_its_scope_and_no_others(
    guarded: LiveServer, keys: Keys, method: str, path: str, allowed: set[str]
) -> None:
    body = {"PUT": FULL_DEPTH, "POST": ASK}.get(method)
    for name in keys.secrets:
        response = guarded.http.request(method, path, json=body, headers=keys[name])
        if name in allowed:
            assert response.status_code not in (401, 403), response.text
        else:
            problem = Problem.of(response)
            assert (problem.status, problem.code) == (403, "forbidden")
            assert f"the key {name} has scope" in problem.message
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic dTpw"}):
        response = guarded.http.request(method, path, json=body, headers=headers)
        assert Problem.of(response)[:2] == (401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"


def test_root_tells_what_answers_here_without_a_key(guarded: LiveServer) -> None:
    for host in ("localhost", "10.0.0.5:8000"):
        answer = guarded.http.get("/", headers={"Host": host})
        assert answer.json() == {"name": "offramp", "version": __version__, "docs": "/docs"}
        assert guarded.http.head("/", headers={"Host": host}).status_code == 200
    assert guarded.http.post("/", json=ASK).status_code == 401


def test_host_of_the_target_counts_in_the_place_of_the_header(
    guarded: LiveServer, keys: Keys
) -> None:
    def status(target: bytes, host: str = "localhost") -> int:
        request = guarded.http.build_request("GET", "/", headers={**keys["ops"], "Host": host})
        request.extensions["target"] = target
        return guarded.http.send(request).status_code

    for target in (b"http://localhost:/v1/models", b"HTTP://API.example.com:80/v1/models"):
        assert status(target) == status(target, host="evil.example") == 200
    assert status(b"http://evil.example/v1/models") == 400
    assert status(b"http://localhost") == 200


def test_no_route_is_open_but_those_that_are_meant_to_be(bundle_folder: Path) -> None:
    app = build_standalone_app(config_of(bundle_folder))
    assert {route.path for route in app.routes if route.scope is None} == {
        *("/", "/health/live", "/health/ready", "/docs", "/openapi.json"),
        *("/console", "/console/{name:path}", "/static-offline-docs/{name:path}"),
        *("/health", "/ping", "/v2/health/live", "/v2/health/ready"),
    }


@pytest.mark.parametrize("prefix", ["", "/health", "/docs", "/health/live"])
def test_prefix_of_the_app_opens_no_route(bundle_folder: Path, keys: Keys, prefix: str) -> None:
    app = build_standalone_app(config_of(bundle_folder, keys=keys.file))

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app, root_path=prefix)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            paths = ("/v1/models", "/healthy", "/health/live")
            return [(await client.get(f"{prefix}{path}")).status_code for path in paths]

    assert asyncio.run(ask()) == [401, 401, 200]


def test_metrics_are_open_if_wanted(start_server: StartServer, keys: Keys) -> None:
    server = start_server(keys=keys.file, open_metrics=True)
    assert server.http.get("/metrics").status_code == 200
    assert server.http.get("/v1/models").status_code == 401


def test_clients_are_known_by_their_address_and_those_of_one_network_of_ipv6_are_one() -> None:
    def client(address: str) -> Client:
        record = Request(Headers([("host", "localhost")]), "GET")
        scope = {"method": "GET", "http_version": "1.1", "client": (address, 1)}
        Access().check(scope, record, "read", probe=False)
        return record.client

    assert client("2001:db8::1").address == "2001:db8::1"
    assert client("2001:db8::1").identity == client("2001:db8:0:0:f::2").identity
    assert client("2001:db8::1").identity != client("2001:db8:0:1::1").identity
    # A socket for both families gives addresses of IPv4 as those of one network of IPv6.
    for given in ("192.0.2.1", "::ffff:192.0.2.1", "unix:x", ""):
        own = given.removeprefix("::ffff:")
        assert (client(given).address, client(given).identity) == (own, own)


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Return the rows that engines get from now on."""
    rows, submit = list[Row](), Engine.submit

    def noting(engine: Engine, more: Sequence[Row]) -> None:
        rows.extend(more)
        submit(engine, more)

    monkeypatch.setattr(Engine, "submit", noting)
    return rows


def test_rows_without_a_key_belong_to_the_client_s_address(
    server: LiveServer, submitted: list[Row]
) -> None:
    server.answer(["w1", "w2"], priority="high")
    assert [(row.client, row.priority.name) for row in submitted] == [("127.0.0.1", "HIGH")] * 2


@pytest.mark.parametrize(
    ("key", "asked", "given"),
    [
        ("batch", None, "LOW"),
        ("batch", "low", "LOW"),
        ("batch", "normal", None),
        ("user", None, "NORMAL"),
        ("user", "low", "LOW"),
        ("user", "high", None),
        ("ops", None, "NORMAL"),
        ("ops", "high", "HIGH"),
    ],
)
def test_rows_have_the_priority_that_the_request_asks_for_or_its_key_s(
    guarded: LiveServer,
    keys: Keys,
    submitted: list[Row],
    key: str,
    asked: str | None,
    given: str | None,
) -> None:
    body = ASK | ({"priority": asked} if asked else {})
    response = guarded.http.post("/v1/classify", json=body, headers=keys[key])
    assert response.status_code == (200 if given else 403)
    expected = [(f"key:{key}", given)] if given else []
    assert [(row.client, row.priority.name) for row in submitted] == expected


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (["Bearer user", "user"], 200),
        (["Basic x", "user"], 200),
        (["Bearer user", "Bearer ops"], 400),
        (["Bearer user", "Bearer user"], 400),
        (["Basic x", "Bearer user"], 400),
        (["user", "ops"], 400),
        (["Bearer user", "ops"], 400),
        (["Bearer user", ""], 200),
        (["Bearer ", "user"], 200),
    ],
)
def test_request_has_one_key(
    guarded: LiveServer, keys: Keys, given: list[str], status: int
) -> None:
    headers = []
    for text in given:
        scheme, _, name = text.rpartition(" ")
        value = f"{scheme} {keys.secrets.get(name, name)}".strip()
        headers.append(("Authorization" if scheme else "X-API-Key", value))
    response = guarded.http.post("/v1/classify", json=ASK, headers=headers)
    assert response.status_code == status, response.text
    assert status == 200 or Problem.of(response).code == "several_keys"


def test_limits_of_a_key_answer_429_with_retry_after(guarded: LiveServer, keys: Keys) -> None:
    def ask(inputs: Any) -> Any:
        return guarded.http.post("/v1/classify", json={"inputs": inputs}, headers=keys["slow"])

    assert Problem.of(ask("w1 " * 9))[:2] == (422, "text_too_long")
    statuses = [ask("w1").status_code for _ in range(12)]
    assert 429 in statuses
    refused = ask("w1")
    assert Problem.of(refused)[:2] == (429, "rate_limited")
    assert 1 <= int(refused.headers["retry-after"]) <= 10
    assert guarded.http.post("/v1/classify", json=ASK, headers=keys["user"]).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("localhost:", 200),
        ("API.Example.com.", 200),
        ("evil.example", 400),
        ("example.com", 400),
        ("notexample.com", 400),
        ("127.0.0.1.evil.example", 400),
        ("user@localhost", 400),
        ("localhost:80:80", 400),
        ("localhost/..", 400),
        ("", 400),
    ],
)
def test_host_that_the_server_does_not_have_is_refused(
    guarded: LiveServer, keys: Keys, host: str, status: int
) -> None:
    headers = {**keys["ops"], "Host": host}
    response = guarded.http.get("/v1/models", headers=headers)
    assert response.status_code == status, response.text
    if status == 400:
        assert Problem.of(response).code == "wrong_host"
    assert guarded.http.get("/health/live", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("hosts", "version", "taken"),
    [
        (["localhost"], "1.1", True),
        ([], "1.1", False),
        ([], "2", False),
        ([], "1.0", True),
        (["localhost", "localhost"], "1.1", False),
        (["localhost", "evil.example"], "1.1", False),
        (["a." * 128 + "example.com"], "1.1", False),  # longer than any name
    ],
)
def test_request_names_one_host_also_where_the_http_server_does_not_check_it(
    hosts: list[str], version: str, taken: bool
) -> None:
    """Ray Serve's proxies pass on what our own server refuses."""
    access = Access(allowed_hosts=[*LOOPBACK_HOSTS, "*.example.com"])
    record = Request(Headers([("host", host) for host in hosts]), "GET")
    asked = {"method": "GET", "path": "/v1/models", "http_version": version}
    with nullcontext() if taken else pytest.raises(WrongHost):
        access.check(asked, record, "read", probe=False)


def test_browsers_may_ask_from_named_pages_only(guarded: LiveServer, keys: Keys) -> None:
    asking = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-api-key, if-match, traceparent, tracestate",
    }
    for origin, allowed in (("https://app.example.com", True), ("https://evil.example", False)):
        preflight = guarded.http.options("/v1/classify", headers={"Origin": origin, **asking})
        assert preflight.is_success == allowed
        headers = {"Origin": origin, **keys["user"]}
        response = guarded.http.post("/v1/classify", json=ASK, headers=headers)
        assert ("access-control-allow-origin" in response.headers) == allowed


def test_answers_may_not_be_sniffed_and_pages_not_framed(guarded: LiveServer) -> None:
    page = guarded.http.get("/docs").headers
    assert "frame-ancestors 'none'" in page["content-security-policy"]
    assert page["x-frame-options"] == "DENY"
    answer = guarded.http.get("/health/live").headers
    assert answer["x-content-type-options"] == "nosniff"
    assert "x-frame-options" not in answer


def test_every_request_has_a_line_that_holds_neither_text_nor_key(
    guarded: LiveServer, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> list[dict[str, Any]]:
        # A line may be written after the answer, so those of earlier requests may come too.
        found = [vars(r)["fields"] for r in caplog.records if r.name == ACCESS_LOG]
        return [line for line in found if line["id"] in ("mine", "refused", "forbidden")]

    with caplog.at_level(logging.INFO):
        body = {"inputs": ["w1 secretword", "w2"], "exit": {"rule": "layer", "layer": 2}}
        traced = {"X-Request-Id": "mine", "traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}
        headers = {**keys["user"], **traced}
        guarded.http.post("/v1/classify", json=body, headers=headers)
        guarded.http.post("/v1/classify", json=body, headers={"X-Request-Id": "refused"})
        guarded.http.put(POLICY, headers={**keys["viewer"], "X-Request-Id": "forbidden"})
        until(lambda: len(lines()) == 3)
    good, refused, forbidden = lines()
    assert good.pop("ms") > 0
    assert good == {
        "id": "mine",
        "trace_id": TRACE_ID,
        "key": "user",
        "client": "127.0.0.1",
        "method": "POST",
        "route": "/v1/classify",
        "status": 200,
        "error": "",
        "model": "tiny",
        "rows": 2,
        "layers": 4,
    }
    assert (refused["key"], refused["status"], refused["error"]) == ("", 401, "unauthorized")
    assert refused["route"] == "/v1/classify"
    of_scope = forbidden["key"], forbidden["status"], forbidden["route"]
    assert of_scope == ("viewer", 403, "/v1/models/{model}/policy")
    everything = json.dumps([{k: str(v) for k, v in vars(r).items()} for r in caplog.records])
    assert "secretword" not in everything
    assert keys.secrets["user"] not in everything


def test_change_of_policy_leaves_a_line_with_who_and_what(
    guarded: LiveServer, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    version = guarded.http.get(POLICY, headers=keys["ops"]).json()["version"]
    fast = {"rule": "patience", "patience": 2}
    policy = {"default": "fast", "profiles": {"fast": fast}}
    body = {"policy": policy, "version": None}
    with caplog.at_level(logging.INFO):
        assert guarded.http.put(POLICY, json=body, headers=keys["ops"]).status_code == 200
        fast["patience"] = 1
        assert guarded.http.put(POLICY, json=body, headers=keys["ops"]).status_code == 200
    line = [vars(r)["fields"] for r in caplog.records if r.message == "policy changed"][-1]
    assert (line["key"], line["client"], line["source"]) == ("ops", "127.0.0.1", "api")
    assert (line["from_version"], line["to_version"]) == (version + 1, version + 2)
    assert line["changes"] == {"profiles.fast.patience": (2, 1)}


@pytest.mark.parametrize(
    ("key", "body", "error"),
    [
        ("wrong", {"policy": {}, "version": None}, "unauthorized"),
        ("viewer", {"policy": {}, "version": None}, "forbidden"),
        ("ops", {"policies": {}}, "invalid_request"),
        ("ops", None, "malformed_body"),
    ],
)
def test_refused_change_of_policy_leaves_a_line_with_who_from_where_and_why(
    guarded: LiveServer,
    keys: Keys,
    caplog: pytest.LogCaptureFixture,
    key: str,
    body: dict[str, Any] | None,
    error: str,
) -> None:
    known = key in keys.secrets
    headers = keys[key] if known else {"X-API-Key": key}
    content = b"" if body is None else json.dumps(body).encode()
    typed = {**headers, "Content-Type": "application/json", "X-Request-Id": f"{key}-{error}"}
    with caplog.at_level(logging.INFO):
        refused = Problem.of(guarded.http.put(POLICY, content=content, headers=typed))
        line = until(lambda: refusal_of(caplog, f"{key}-{error}"))
    assert (line["error"], line["status"], line["why"]) == (error, *refused[::2])
    who = key if known else ""
    assert (line["key"], line["client"], line["model"]) == (who, "127.0.0.1", "tiny")
    assert not known or keys.secrets[key] not in json.dumps(line)


def refusal_of(caplog: pytest.LogCaptureFixture, request_id: str) -> Any:
    """Return the line about a refused change of a policy; None if there is none."""
    lines = [vars(r)["fields"] for r in caplog.records if r.message == "change of a policy refused"]
    return next((line for line in lines if line["id"] == request_id), None)


def test_line_of_a_refusal_names_what_was_asked_but_no_path_that_a_client_made_up(
    guarded: LiveServer, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    policy = {"default": {"rule": "layer", "layer": 2}, "limits": {"overrides": "none"}}
    with caplog.at_level(logging.INFO):
        conflict = {**keys["ops"], "X-Request-Id": "conflict"}
        guarded.http.put(POLICY, json={"policy": policy, "version": 9999}, headers=conflict)
        asked = until(lambda: refusal_of(caplog, "conflict"))
        unknown = {**keys["ops"], "X-Request-Id": "unknown"}
        guarded.http.put(
            "/v1/models/s3cret/policy", json={"policy": policy, "version": None}, headers=unknown
        )
        made_up = until(lambda: refusal_of(caplog, "unknown"))
        elsewhere = {**keys["ops"], "X-Request-Id": "elsewhere", "Host": "s3cret.example"}
        guarded.http.put(POLICY, json={"policy": policy, "version": None}, headers=elsewhere)
        wrong_host = until(lambda: refusal_of(caplog, "elsewhere"))
    assert asked["changes"]["limits.overrides"][1] == "none"
    assert asked["from_version"] == 9999
    assert made_up["error"] == "unknown_model"
    assert (wrong_host["error"], wrong_host["key"]) == ("wrong_host", "ops")
    assert "s3cret" not in json.dumps([made_up, wrong_host])


def test_openapi_says_which_scope_a_route_needs(guarded: LiveServer) -> None:
    document = guarded.http.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if "security" in operation:
                assert guarded.http.request(method, path).status_code == 401, path
                assert "401" in operation["responses"], path
    assert set(document["components"]["securitySchemes"]) == {"bearer", "apiKey"}
    put = document["paths"]["/v1/models/{model}/policy"]["put"]
    assert put["security"] == [{"bearer": []}, {"apiKey": []}]
    assert "`admin`" in put["responses"]["401"]["description"]
    assert "security" not in document["paths"]["/health/live"]["get"]
