import gc

import pytest

from serve.api.json_decoding import MAX_FIELDS, parse_json
from tests.serve.support.live_server import LiveServer, Problem


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is empty"),
        (b"{", "the body is not JSON: Expecting property name"),
        (b'{"inputs": "w1",}', "at character 16"),
        (b'{"inputs": "a\nb"}', "Invalid control character at character 13"),
        (b'{"inputs": "\\q"}', "Invalid \\escape at character 12"),
        (b'{"inputs": "w1"} x', "the body is not JSON: Extra data"),
        (b"inputs=w1", "the body is not JSON"),
        (b'{"inputs": "caf\xe9"}', "the body is not UTF-8 at byte 15"),
        (b'{"inputs": "\xed\xa0\x80"}', "the body is not UTF-8 at byte 12"),
        (b'\xef\xbb\xbf{"inputs": "w1"}', "the body is not JSON"),
        ('{"inputs": "w1"}'.encode("utf-16"), "the body is not UTF-8"),
        (b"\x1f\x8b\x08\x00gzip", "the body is not UTF-8"),
        (b'{"inputs": "w1", "inputs": "w2"}', "the field 'inputs' twice"),
        (b'{"inputs": {"text": "w1", "text": ""}}', "the field 'text' twice"),
        (b'{"inputs": "w1", "top_k": ' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"inputs": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested too deeply"),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "nested too deeply"),
    ],
)
def test_body_that_is_not_strict_json_is_refused(
    server: LiveServer, body: bytes, message: str
) -> None:
    problem = Problem.of(server.post(body))
    assert (problem.status, problem.code) == (400, "malformed_body")
    assert message in problem.message


@pytest.mark.parametrize("body", ["[]", "null", "1", "true", '"w1"', '[{"inputs": "w1"}]'])
def test_json_that_is_no_object_is_refused(server: LiveServer, body: str) -> None:
    problem = Problem.of(server.post(body))
    assert (problem.status, problem.message) == (422, "must be a JSON object")


def test_a_large_text_is_read_without_a_look_for_cycles() -> None:
    # 59,000 small lists took six times as long with it.
    def collections() -> int:
        return sum(generation["collections"] for generation in gc.get_stats())

    body = b'{"input":[' + b"[1]," * 59_000 + b"[1]]}"
    gc.collect()
    before = collections()
    assert len(parse_json(body, 120_000)["input"]) == 59_001
    assert collections() - before <= 1
    assert gc.isenabled()


def test_policy_is_read_as_strictly(server: LiveServer) -> None:
    response = server.http.put(
        "/v1/models/tiny/policy",
        content=b'{"policy": {}, "policy": {}}',
        headers={"Content-Type": "application/json"},
    )
    assert Problem.of(response) == (
        400,
        "malformed_body",
        "the body has the field 'policy' twice in one object",
    )


@pytest.mark.parametrize(
    ("item", "message"), [(1, "must be a text or an object"), ("w1", "at most 10000 entries")]
)
def test_flood_of_items_is_answered_with_one_error(
    server: LiveServer, item: object, message: str
) -> None:
    assert server.refusal([item] * 200_000).message.count(message) == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/classify?profile=fast"), ("PUT", "/v1/models/tiny/policy?dry_run=true")],
)
def test_query_parameters_are_refused_where_the_body_says_everything(
    server: LiveServer, method: str, path: str
) -> None:
    response = server.http.request(method, path, json={"inputs": "w1", "policy": {}})
    problem = Problem.of(response)
    assert problem.status == 422
    assert path.partition("?")[2].partition("=")[0] in problem.message


def test_flood_of_unknown_fields_is_not_listed(server: LiveServer) -> None:
    fields = {f"x{i}": 1 for i in range(MAX_FIELDS)}
    problem = server.refusal("w1", **fields)
    assert problem.status == 400
    assert problem.message.startswith(f"the body has an object of {MAX_FIELDS + 1} fields")
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
