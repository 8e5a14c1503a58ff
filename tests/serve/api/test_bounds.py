"""Whatever a client may list has a bound in the schemas."""

from collections.abc import Iterator
from typing import Any

from tests.serve.support.live_server import LiveServer


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
                # Elements may be anything, or are token ids, checked up to the first that is wrong.
                items = schema.get("items", {})
                if items and items.get("type") != "integer" and "maxItems" not in schema:
                    unbounded.append(schema)
    assert seen
    assert unbounded == []
