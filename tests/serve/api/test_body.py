import codecs

import pytest

from serve.api.json_decoding import MAX_FIELDS
from tests.serve.support.live_server import LiveServer, Problem

BODIES = [("POST", "/v1/classify"), ("PUT", "/v1/models/tiny/policy")]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"inputs": "w1",}',
        b'{"inputs": "a\nb"}',
        b'{"inputs": "\\q"}',
        b'{"inputs": "w1"} x',
        b"inputs=w1",
        b'{"inputs": "caf\xe9"}',
        b'{"inputs": "\xed\xa0\x80"}',
        '{"inputs": "w1"}'.encode("utf-16"),
        b"\x1f\x8b\x08\x00gzip",
        b'{"inputs": "w1", "inputs": "w2"}',
        b'{"inputs": {"text": "w1", "text": ""}}',
        b'{"inputs": "w1", "top_k": ' + b"9" * 5000 + b"}",
        b'{"inputs": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    ],
)
@pytest.mark.parametrize(("method", "path"), BODIES)
def test_body_that_is_not_strict_json_is_refused(
    server: LiveServer, body: bytes, method: str, path: str
) -> None:
    headers = {"Content-Type": "application/json"}
    problem = Problem.of(server.http.request(method, path, content=body, headers=headers))
    assert (problem.status, problem.code) == (400, "malformed_body")


def test_byte_order_mark_before_a_body_is_skipped(server: LiveServer) -> None:
    plain = b'{"inputs": "w1"}'
    found = [server.post(body).json()["results"] for body in (plain, codecs.BOM_UTF8 + plain)]
    assert found[0][0]["label"] == found[1][0]["label"]


@pytest.mark.parametrize("body", ["[]", "null", "1", "true", '"w1"', '[{"inputs": "w1"}]'])
def test_json_that_is_no_object_is_refused(server: LiveServer, body: str) -> None:
    assert Problem.of(server.post(body)).status == 422


@pytest.mark.parametrize(
    ("item", "message"), [(1, "must be a text or an object"), ("w1", "at most 10000 entries")]
)
def test_flood_of_items_is_answered_with_one_error(
    server: LiveServer, item: object, message: str
) -> None:
    assert server.refusal([item] * 200_000).message.count(message) == 1


@pytest.mark.parametrize(("method", "path"), BODIES)
def test_query_parameters_are_refused_where_the_body_says_everything(
    server: LiveServer, method: str, path: str
) -> None:
    body = {"inputs": "w1", "policy": {}}
    response = server.http.request(method, path, params={"dry_run": "true"}, json=body)
    assert Problem.of(response).status == 422


def test_flood_of_unknown_fields_is_not_listed(server: LiveServer) -> None:
    fields = {f"x{i}": 1 for i in range(MAX_FIELDS)}
    assert server.refusal("w1", **fields).status == 400
    for flood in ({"exit": fields | {"rule": "never"}}, {"exit": {"rule": fields | {"a": 1}}}):
        assert server.refusal("w1", **flood).status == 400


def test_message_about_something_long_is_short(server: LiveServer) -> None:
    for problem in (
        server.refusal("w1", model="x" * 100_000),
        server.refusal("w1", exit={"rule": "x" * 100_000}),
        server.refusal("w1", **{"x" * 100_000: 1}),
        server.refusal("w1", exit={"rule": "layer", "layer": 10**4000}),
    ):
        assert 400 <= problem.status < 500
        assert len(problem.message) < 1100
