"""The console's files as the server sends them."""

import gzip
import tomllib
from pathlib import Path

import pytest

import serve
from tests.serve.api.conftest import StartServer
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, Problem, serving_bundles

PACKAGE = Path(serve.__file__).parent
STATIC = PACKAGE / "console/static"
FILES = [file.relative_to(STATIC).as_posix() for file in sorted(STATIC.rglob("*.*"))]
# What Firefox and Chromium send for a page.
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def test_root_tells_other_clients_what_answers(server: LiveServer) -> None:
    for accept in ("*/*", "application/json", "application/json, text/html", "", "text/plain"):
        assert server.http.get("/", headers={"Accept": accept}).json()["name"] == "offramp"


def test_root_shows_browsers_the_page_under_a_strict_policy(server: LiveServer) -> None:
    pages = [server.http.get(path, headers=BROWSER) for path in ("/", "/console")]
    assert pages[0].content == pages[1].content == (STATIC / "index.html").read_bytes()
    assert server.http.get("/console/", headers=BROWSER).is_redirect
    for page in pages:
        policy = page.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert page.headers["x-frame-options"] == "DENY"
    assert "unsafe-inline" in server.http.get("/docs").headers["content-security-policy"]
    assert server.http.head("/", headers=BROWSER).headers["content-type"].startswith("text/html")


def test_browsers_keep_files_and_take_them_compressed(server: LiveServer) -> None:
    plain = server.http.get("/console/app.js", headers={"Accept-Encoding": "identity"})
    assert plain.content == (STATIC / "app.js").read_bytes()
    assert "content-encoding" not in plain.headers
    packed = server.http.get("/console/app.js")
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    tag = {"If-None-Match": plain.headers["etag"]}
    again = server.http.get("/console/app.js", headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    assert server.http.get("/console/api.js", headers=tag).status_code == 200


@pytest.mark.parametrize("path", ["nothing.js", "../pages.py", "..%2Fpages.py", "index.html"])
def test_no_other_file_is_sent(server: LiveServer, path: str) -> None:
    problem = Problem.of(server.http.get(f"/console/{path}"))
    assert problem[:2] == (404, "not_found")


def test_page_needs_no_key_and_shows_nothing_without_one(
    bundle_folder: Path, tmp_path: Path
) -> None:
    make_key(tmp_path, "admin")
    with serving_bundles(bundle_folder, keys=tmp_path / "keys.json") as guarded:
        for path in ("/", "/console", *(f"/console/{name}" for name in FILES[:3])):
            assert guarded.http.get(path, headers=BROWSER).status_code in (200, 404)
        assert guarded.http.get("/v1/models", headers=BROWSER).status_code == 401


def test_page_is_small_and_its_libraries_have_their_licences(start_server: StartServer) -> None:
    server, loaded = start_server(), [name for name in FILES if not name.endswith("LICENSE")]
    assert sum(len(gzip.compress((STATIC / name).read_bytes())) for name in loaded) < 150_000
    vendored = {name.split("/")[1] for name in FILES if name.startswith("vendor/")}
    for library in ("preact", "htm", "uplot", "pico"):
        assert f"{library}.LICENSE" in vendored
        assert "opyright" in server.http.get(f"/console/vendor/{library}.LICENSE").text


def test_wheel_has_every_file() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["serve"]
    packed = {file for pattern in patterns for file in PACKAGE.glob(pattern)}
    assert {STATIC / name for name in FILES} <= packed
