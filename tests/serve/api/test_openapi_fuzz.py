"""Random requests from the OpenAPI document, with and without keys."""

from pathlib import Path

import pytest

from tests.serve.api.conftest import StartServer
from tests.serve.support.keys import make_key
from tests.serve.support.openapi_fuzz import check_unharmed, fuzz

# Without those that try every bound of every field in turn, which one run is enough for.
SOME_PHASES = ("--phases", "examples,fuzzing")


@pytest.mark.nightly
def test_open_server_gives_documented_answers_only(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server()
    fuzz(server, tmp_path, *SOME_PHASES)
    check_unharmed(server)


@pytest.mark.parametrize(
    ("scope", "options"),
    [
        pytest.param("", SOME_PHASES, marks=pytest.mark.nightly),
        ("classify", SOME_PHASES),
        ("admin", ()),
    ],
)
def test_server_with_keys_gives_documented_answers_only(
    start_server: StartServer, tmp_path: Path, scope: str, options: tuple[str, ...]
) -> None:
    secrets = {
        "": "",
        "classify": make_key(tmp_path, "classify", rows_per_s=1, max_text_chars=100),
        "admin": make_key(tmp_path, "admin"),
    }
    server = start_server(keys=tmp_path / "keys.json")
    server.http.headers["X-API-Key"] = secrets["classify"]
    server.answer(["w1"] * 10)  # what the key may take in ten seconds: 429 comes next
    fuzz(server, tmp_path, *options, key=secrets[scope])
    server.http.headers["X-API-Key"] = secrets["admin"]
    check_unharmed(server)


def test_document_names_answers_that_no_generated_request_gets(start_server: StartServer) -> None:
    server = start_server(allowed_hosts=["localhost"])
    paths = server.http.get("/openapi.json", headers={"Host": "localhost"}).json()["paths"]
    for path, operations in paths.items():
        status = server.http.get(path, headers={"Host": "evil.example"}).status_code
        for operation in operations.values():
            assert str(status) in operation["responses"], path
    answers = paths["/v1/classify"]["post"]["responses"]
    assert answers["429"]["headers"].keys() == {"Retry-After"}
    assert answers["401"]["headers"].keys() == {"WWW-Authenticate"}
