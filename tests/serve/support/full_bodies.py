"""Bodies in which one field of a schema is a list that fills them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

_HERE = "<here>"
_DEEPEST = 6  # schemas of rules and profiles contain each other

Path = tuple[str | int, ...]


def paths_of(schema: type[BaseModel]) -> list[Path]:
    """Return the place of every field of a schema, of its lists' elements and its maps' values."""
    document = schema.model_json_schema()
    return list(dict.fromkeys(_paths(document, document.get("$defs", {}), ())))


def full_body(body: Mapping[str, Any], path: Path, element: str, num_bytes: int) -> bytes:
    """Return a body with a list at a place, of as many elements as fit into its size."""
    before, _, after = json.dumps(_with(body, path)).partition(f'"{_HERE}"')
    room = num_bytes - len(before) - len(after) - 1
    elements = ",".join([element] * (room // (len(element) + 1)))
    return f"{before}[{elements}]{after}".encode()


def _paths(node: Mapping[str, Any], defs: Mapping[str, Any], path: Path) -> Iterator[Path]:
    if path:
        yield path
    if len(path) > _DEEPEST:
        return
    for step, inner in _parts(node, defs):
        yield from _paths(inner, defs, path if step is None else (*path, step))


def _parts(
    node: Mapping[str, Any], defs: Mapping[str, Any]
) -> Iterator[tuple[str | int | None, Any]]:
    """Return the schemas in a schema, with the step that leads there, if any."""
    if "$ref" in node:
        yield None, defs[node["$ref"].rpartition("/")[2]]
    for kind in ("anyOf", "oneOf", "allOf"):
        yield from ((None, each) for each in node.get(kind, ()))
    yield from node.get("properties", {}).items()
    for kind, step in (("items", 0), ("additionalProperties", "x")):
        if isinstance(inner := node.get(kind), dict):
            yield step, inner


def _with(body: Any, path: Path) -> Any:
    """Return a body with a mark at a place, through new objects and lists where it has none."""
    if not path:
        return _HERE
    first, rest = path[0], path[1:]
    if isinstance(first, int):
        return [_with(body[0] if isinstance(body, list) and body else None, rest)]
    held = body if isinstance(body, dict) else {}
    return {**held, first: _with(held.get(first), rest)}
