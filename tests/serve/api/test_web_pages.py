"""What web pages of other origins, and curl's form, may make the server do."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from serve.api.access import Access
from serve.api.request import Headers, Request
from serve.errors import Forbidden
from serve.standalone import build_standalone_app
from tests.serve.api.conftest import StartServer
from tests.serve.support import spoken
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, config_of, serving_bundles

# Browsers send these without asking the server first; None stands for no Content-Type.
SIMPLE = (
    None,
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
)
# What browsers say of a page of another origin, old ones included.
STRANGE: tuple[dict[str, str], ...] = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:9"},
    {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://localhost:9", "Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
)
BODIES = {
    **spoken.BODIES,
    "/v2/repository/index": {},
    "/v1/models/tiny/policy": {"version": 1, "policy": {"default": {"rule": "never"}}},
}


def changing_routes(folder: Path) -> list[tuple[str, str]]:
    """Return method and path of every route that takes a body."""
    app = build_standalone_app(config_of(folder))
    names = {"model": "tiny", "alias": "a", "version": "1"}
    return [
        (route.method, route.path.replace("{rest:path}", "x").format(**names))
        for route in app.routes
        if route.method != "GET"
    ]


def ask(server: LiveServer, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    body = BODIES.get(path, {"inputs": "w1"})
    return server.http.request(
        method, path, content=httpx.Request("POST", "http://x", json=body).content, headers=headers
    )


def test_no_page_of_another_origin_makes_a_server_without_keys_work(
    start_server: StartServer, bundle_folder: Path
) -> None:
    server = start_server()
    routes = changing_routes(bundle_folder)
    assert len(routes) > 15
    for method, path in routes:
        for kind in (*SIMPLE, "application/json"):
            for page in STRANGE:
                headers = page | ({"Content-Type": kind} if kind else {})
                response = ask(server, method, path, headers)
                assert response.status_code == 403, (method, path, headers)
                assert "comes from a web page of" in response.text
    assert server.metric("offramp_exits_total") == 0
    assert server.http.get("/v1/models/tiny/policy").json()["version"] == 1


def test_forms_and_texts_of_any_client_are_refused_on_every_route(
    server: LiveServer, bundle_folder: Path
) -> None:
    """Browsers of before 2020 do not say that another page sends them."""
    routes = changing_routes(bundle_folder)
    for method, path in (each for each in routes if each[0] != "DELETE"):  # no form sends that
        for kind in SIMPLE[1:]:
            response = ask(server, method, path, {"Content-Type": str(kind)})
            assert response.status_code in (405, 415, 501), (method, path, response.text)
            if response.status_code == 415:
                assert "curl: -H 'Content-Type: application/json'" in response.text


@pytest.mark.parametrize(
    ("method", "headers", "passes"),
    [
        ("POST", {}, True),
        ("POST", {"sec-fetch-mode": "cors"}, True),  # Node's fetch
        ("POST", {"origin": "http://localhost:8000"}, True),
        ("POST", {"origin": "http://localhost"}, False),
        ("POST", {"origin": "https://inside.example", "sec-fetch-site": "same-origin"}, True),
        ("POST", {"sec-fetch-site": "none"}, True),
        ("POST", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, False),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, True),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, False),
        ("GET", {"origin": "http://evil.example"}, False),
        ("POST", {"origin": "https://app.example", "sec-fetch-site": "cross-site"}, True),
        ("POST", {"origin": "https://app.example.evil"}, False),
    ],
)
def test_only_pages_of_the_server_itself_and_named_ones_may_ask(
    method: str, headers: dict[str, str], passes: bool
) -> None:
    access = Access(cors_origins=["https://app.example"])
    scope = {"method": method, "http_version": "1.1"}
    given = Headers([("host", "localhost:8000"), *headers.items()])
    asked = Request(given, method)
    try:
        access.check(scope, asked, "classify", probe=False)
    except Forbidden:
        assert not passes
    else:
        assert passes


@pytest.fixture(scope="module")
def guarded(bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("keys")
    key = make_key(folder, "admin")
    keys = folder / "keys.json"
    with serving_bundles(bundle_folder, keys=keys, cors_origins=["*"]) as server:
        server.http.headers["X-API-Key"] = key
        yield server


@pytest.mark.parametrize(
    "path", ["/v1/classify", "/v1/models/tiny:predict", "/v2/models/tiny/infer"]
)
def test_curls_form_is_json_where_a_key_comes_with_it(guarded: LiveServer, path: str) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert ask(guarded, "POST", path, form).status_code == 200
    assert ask(guarded, "POST", path, {"Content-Type": "text/plain"}).status_code == 415
    assert ask(guarded, "POST", path, {**form, "X-API-Key": ""}).status_code == 401


def test_with_keys_any_page_may_ask_if_that_is_wanted(guarded: LiveServer) -> None:
    response = ask(
        guarded, "POST", "/v1/classify", {"Content-Type": "application/json", **STRANGE[0]}
    )
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "*"
