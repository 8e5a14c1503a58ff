"""Whatever a client may list has a bound, which is kept before the elements are looked at."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from serve.api.json_decoding import MAX_FRACTIONS, MAX_LISTED, MAX_PARTS, parse_json
from serve.api.policy_edits import PolicyUpdate
from serve.classifier.classify_request import MAX_LIST
from serve.dialects.registry import choose_dialects
from serve.errors import MalformedBody
from serve.standalone import build_standalone_app
from tests.serve.support import spoken
from tests.serve.support.full_bodies import full_body, paths_of
from tests.serve.support.live_server import LiveServer, config_of
from tests.serve.support.work import Work, work_of

MAX_BODY_BYTES = 2**20
ROUTES = {
    route.path: route
    for dialect in choose_dialects(["all"])
    for route in dialect.routes
    if route.schema
}
SPOKEN = (
    *(spoken.V1, spoken.HF, spoken.TEI, spoken.VLLM, spoken.KSERVE, spoken.OIP),
    *(spoken.CONTENTS, spoken.BASIC, spoken.MODERATIONS),
)
# Of every path with a body, one that is answered; the other paths are other names of these.
BODIES = {path.replace("tiny", "{model}"): spoken.BODIES[path] for path in SPOKEN} | {
    "/invocations": {"inputs": "w1", "parameters": {}},
    spoken.TOKENIZE: {"inputs": "w1"},
    "/v2/repository/index": {},
    "/v2/repository/models/{model}/load": {},
    "/v2/repository/models/{model}/unload": {},
}
POLICY = "/v1/models/{model}/policy"


def arrays(schema: Any, schemas: dict[str, Any], seen: set[str]) -> Iterator[Any]:
    """Return every array that a schema allows; each model is entered once."""
    if isinstance(schema, list):
        parts = schema
    elif not isinstance(schema, dict):
        return
    elif "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        parts = [] if name in seen else [schemas[name]]
        seen.add(name)
    else:
        parts = [value for key, value in schema.items() if key not in ("examples", "default")]
        if schema.get("type") == "array":
            yield schema
    for part in parts:
        yield from arrays(part, schemas, seen)


def test_lists_of_checked_elements_have_a_bound(server: LiveServer) -> None:
    document = server.http.get("/openapi.json").json()
    unbounded, seen = list[Any](), set[str]()
    for operations in document["paths"].values():
        for operation in operations.values():
            body = operation.get("requestBody", {}).get("content", {})
            for schema in arrays(body, document["components"]["schemas"], seen):
                # Elements may be anything; or this only documents what code of ours checks.
                if schema.get("items") and "maxItems" not in schema:
                    unbounded.append(schema)
    assert seen
    assert [each for each in unbounded if each["items"] != {"type": "integer"}] == []


def test_every_schema_has_a_body() -> None:
    assert {ROUTES[path].schema for path in BODIES} == {e.schema for e in ROUTES.values()}


@pytest.fixture(scope="module")
def work(bundle_folder: Path) -> Iterator[Callable[[str, str, bytes], Work]]:
    """Send a body of JSON to an app, and count what it does."""
    app = build_standalone_app(config_of(bundle_folder, max_body_bytes=MAX_BODY_BYTES))
    lifespan = app.lifespan()
    with asyncio.Runner() as runner:
        runner.run(lifespan.__aenter__())
        # What is made with the first request is not counted.
        runner.run(work_of(app, "POST", "/v1/classify", b'{"inputs": "w1"}'))
        yield lambda *request: runner.run(work_of(app, *request))
        runner.run(lifespan.__aexit__(None, None, None))


@pytest.mark.parametrize("path", [*BODIES, POLICY])
def test_a_field_that_fills_the_body_is_not_worked_through(
    work: Callable[[str, str, bytes], Work], path: str
) -> None:
    """Every field is a list in turn, be it one or not; a new field needs no test of its own."""
    method = "PUT" if path == POLICY else ROUTES[path].method
    schema = PolicyUpdate if path == POLICY else ROUTES[path].schema
    assert schema
    for place, element in product(paths_of(schema), ("{}", "null", "1", '"a"')):
        body = full_body(BODIES.get(path, {"policy": {}}), place, element, MAX_BODY_BYTES)
        done = work(method, path.format(model="tiny"), body)
        assert done.status < 500, (place, element, done)
        assert max(done.lines, done.containers) < 4 * MAX_LIST, (place, element, done)


@pytest.mark.parametrize(
    ("element", "most"),
    [
        ("[]", MAX_PARTS - 1),
        ("{}", MAX_PARTS - 1),
        ('{"a":0}', (MAX_PARTS - 1) // 2),
        ("0", MAX_LISTED + 1),
        ("1.5", MAX_FRACTIONS),
        ("1e9", MAX_FRACTIONS),
        ('"[[,{:\\\\\\",,"', 200_000),
    ],
)
def test_json_holds_so_much_and_no_more(element: str, most: int) -> None:
    assert len(parse_json(f"[{','.join([element] * most)}]".encode())) == most
    with pytest.raises(MalformedBody):
        parse_json(f"[{','.join([element] * most)},{','.join([element] * MAX_LISTED)}]".encode())


@pytest.mark.parametrize(
    "text", ["[{:," * 2**19, '\\"' * 2**20, "\\\\" * 2**20, 'a, "b": [{' * 2**18]
)
def test_texts_may_hold_what_they_like(text: str) -> None:
    body = b'{"inputs": ["' + text.replace("\\", "\\\\").replace('"', '\\"').encode() + b'"]}'
    assert parse_json(body) == {"inputs": [text]}
